"""Faults on purpose, for tests: answer the next requests of an API with an error, late, or not at all.

    fault.py      what shall go wrong: a value
    methods.py    `fail_next`, `delay_next`, `drop_next`, the same for a broker on the loop, in a thread, in a process
    injector.py   has it happen inside the broker: a function around the handler of the API, gone after the last fault
    control.py    orders for a broker in another process, over a socket that only its parent has

A broker without faults runs without any of this: nothing here is imported, and its requests take the same path.
"""
