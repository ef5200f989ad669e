"""The keeper of a root: makes the protocol hold also for jobs that died or whose writers do little.

``scan`` looks, ``core.reconcile`` decides, ``apply`` acts, ``loop`` says when. Any number of them may run.
"""
