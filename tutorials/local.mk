## The tutorials see the public headers only.
