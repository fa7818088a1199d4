#!/bin/sh
# Writes the passwords that docker-compose.yml asks for, random, into .env, which only its owner can read.
#   docker/env.sh [FILE]
# A file that exists is kept: servers that have run know its passwords.
set -eu
file=${1:-$(dirname "$0")/../.env}
if [ -e "$file" ]; then
  echo "$file exists; kept"
  exit 0
fi
# Hexadecimal: the passwords become parts of URLs.
password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
umask 077
new=$(mktemp "$file.XXXXXX")
trap 'rm -f "$new"' EXIT
{
  echo "WARREN_RABBITMQ_PASSWORD=$(password)"
  echo "WARREN_REDIS_PASSWORD=$(password)"
} >"$new"
mv "$new" "$file"
echo "$file written"
