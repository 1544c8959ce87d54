"""Modbus without input and output: frames, requests and answers, values of registers, and blocks of them.

The rules are those of "MODBUS Application Protocol Specification V1.1b3" (2012), called [application], and "MODBUS over
Serial Line Specification and Implementation Guide V1.02" (2006), called [serial line], of modbus.org.
"""
