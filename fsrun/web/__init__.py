"""The viewer: a page about all runs below a root, and the JSON that it is made of. Reads files, writes none.

``fsrun up`` serves it; docs/viewer.md describes it. Starlette and uvicorn are needed, the extra ``web``.
"""
