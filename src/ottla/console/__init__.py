"""The console: a web page that shows a cluster, and changes it if allowed.

    watch       collects a `Snapshot` of the cluster every few seconds over the Kafka protocol; no web code
    history     seven days of lag, rates and sizes, and the audit log, in one SQLite file
    actions     everything that changes the cluster; each change is written to the audit log
    messages    reading, filtering, decoding and writing records
    web         the pages, which only render snapshots, and the guard in front of them

It runs in its own process: `ottla console`, or a child of `ottla serve --console`. Only `web` imports NiceGUI.
"""
