#!/bin/sh
# Runs one of the SQL files: DATABASE_URL=postgres://… run.sh charge|rollback|stale INVOICE [CENTS]
# A transaction that PostgreSQL aborts to resolve a conflict (40001, 40P01, 55P03) runs again, and so does one that finds another in
# flight.
set -u
action=$1 invoice=$2 cents=${3:-1999}
cd "$(dirname "$0")" || exit 1

# 40 tries with 0.25 seconds between them: longer than a transaction should be open.
tries=40
while [ "$tries" -gt 0 ]; do
    tries=$((tries - 1))
    said=$(psql "$DATABASE_URL" -X -q -v invoice="$invoice" -v cents="$cents" -f "$action.sql" 2>&1)
    code=$?
    case $said in
        *"ERROR:  40001"* | *"ERROR:  40P01"* | *"ERROR:  55P03"* | "in flight") sleep 0.25 ;;
        *"ERROR:  OW003"*) echo "refused: OW003"; exit 0 ;;
        *) echo "$said"; exit "$code" ;;
    esac
done
echo "gave up: $said" >&2
exit 1
