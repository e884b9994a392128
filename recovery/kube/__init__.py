"""Talks to the API server. Only this package uses kubernetes_asyncio and aiohttp.

kubernetes_asyncio finds the cluster, authenticates and builds the connection pool. Requests then go straight to that
pool, because the generated methods parse every answer into models and cost 3 to 12 times as much. Answers are decoded
into projections that name only what `core` reads. Measured on two cores: 30,000 pod events a second from the socket to
the subscriber, 50,000 pods of 8 KB listed in 1.6 s and 60 MB, 3,400 to 7,000 writes a second.

`session` connects, and `client` implements `ports.ApiClient`. `informer` keeps one resource current, and `group_store`
all of them, as `ports.GroupStore`: objects by group in `group_objects`, ledgers in `ledger_index`, facts about all
nodes in `fleet_facts`. `job_history` remembers what the objects no longer show.
"""
