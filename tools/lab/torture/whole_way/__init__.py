"""The whole way of a reading, from devices to tables, with faults at every hop."""
