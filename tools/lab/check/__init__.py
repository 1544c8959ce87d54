"""`holdfast check broker`: checks over connections whether a server keeps to the MQTT standards."""
