"""The console: a web page that watches a cluster, and changes it where it is allowed to.

    watch       gathers a `Snapshot` of the cluster every few seconds through the Kafka protocol; no web code
    history     lag, rates and sizes of seven days, and the audit list, in one SQLite file
    actions     everything that changes the cluster; each is written to the audit list
    messages    reading, filtering, decoding and writing records
    web         the pages, which render snapshots and nothing else, and the guard in front of them

Its own process: `ottla console`, or a child of `ottla serve --console`. NiceGUI is imported by `web` alone.
"""
