"""The HTTP service. `serve` runs `app`; its routes use the `Service` that is opened once per process.

A request passes `limits` and `dependencies` (who sends it, is it within the limits), reaches its route, and asks
`turns` (run, follow, resume) or `Sessions` (find, list, rename, ...). `responses` makes a response of a turn.
"""
