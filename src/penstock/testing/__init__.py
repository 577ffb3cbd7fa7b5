"""The engine in one process, without Spark, for tests that hand over its rows. It is not a second engine to deploy.

What scenarios are for is decision 0037.
"""
