"""`holdfast device new`: a checked `device.json` without typing it.

`answers` has what is asked, `questions` asks for it on a terminal, `draft` makes the configuration from it and checks
it. `announced` finds gateways by mDNS, `fitted` the sensors at a board.
"""
