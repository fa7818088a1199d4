#!/bin/sh
# Hold grafana.json against the types of Grafana's own dashboards: needs Node's npm, which downloads them.
set -eu
dashboard=$(cd "$(dirname "$0")" && pwd)/grafana.json
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
npm install --silent --no-audit --no-fund --ignore-scripts --prefix . @grafana/schema@13 typescript@5
{
  echo "import type { Dashboard } from '@grafana/schema';"
  echo "export const dashboard: Partial<Dashboard> & { __inputs: unknown; __requires: unknown } ="
  cat "$dashboard"
} > dashboard.ts
node_modules/.bin/tsc --noEmit --strict --skipLibCheck --moduleResolution bundler --module esnext --target es2022 dashboard.ts
echo "grafana.json is a dashboard of Grafana $(node -p "require('@grafana/schema/package.json').version")"
