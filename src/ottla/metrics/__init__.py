"""The broker's figures over HTTP, for Prometheus and for people: /metrics, /health, /ready.

    catalogue.py    every figure: name, kind, labels, meaning. `docs/metrics.md` is written from it
    counts.py, ...  collectors: each reads the parts of a broker when somebody asks, and gives samples
    exposition.py   samples as text
    scrape.py       one answer to /metrics, in slices
    http.py         the server

The hot paths count into plain integers of objects that they hold anyway (`net/counts.py`, `replica/traffic.py`);
everything else is worked out when it is asked for.
"""
