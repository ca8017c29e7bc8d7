"""Fault injection for tests: answer the next requests of an API with an error, late, or not at all.

    fault.py      describes one fault: a value
    methods.py    `fail_next`, `delay_next`, `drop_next`: the same for a broker on the loop, in a thread, in a process
    injector.py   injects faults in the broker: wraps the handler of the API until the last fault has happened
    control.py    sends commands to a broker in another process, over a socket that only its parent has

A broker without faults imports nothing of this, and its requests take the usual path.
"""
