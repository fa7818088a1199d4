"""A user for each role on RabbitMQ and Redis: `python -m workers.rights`, and the logins for a launcher's processes.

tasks/rights.py says what each may do on RabbitMQ, keys.py on Redis; accounts.py keeps the passwords; on_rabbitmq.py and
on_redis.py make the users.
"""
