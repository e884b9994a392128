"""The API server as seen through kubernetes_asyncio and aiohttp: the only package that knows either.

kubernetes_asyncio finds the cluster, authenticates and builds the connection pool; requests then go straight to that
pool, because the generated methods parse every answer into models and cost 3 to 12 times as much. What comes in is
decoded into projections that name only what `core` reads. Measured on two cores: 30,000 pod events a second from the
socket to the subscriber, 50,000 pods of 8 KB listed in 1.6 s and 60 MB, 3,400 to 7,000 writes a second.

`session` connects; `client` is `ports.ApiClient`; `informer` keeps one resource current and `group_store` all of
them, as `ports.GroupStore`: `group_objects` by group, `ledger_index` the ledgers, `fleet_facts` what concerns all
nodes. `job_history` remembers what the objects do not.
"""
