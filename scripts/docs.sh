#!/usr/bin/env bash
# Makes a site of README.md, the pages beside it and docs/ in target/docs/site, with mdBook, and
# checks that every link of it leads somewhere. Links to sources become plain text. mdBook is
# installed into target/tools at its first use.
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.4.52
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
tools=$target/tools
PATH="$PATH:$tools/bin"
if ! mdbook --version >/dev/null 2>&1; then
    echo "docs: installing mdbook $version into $tools (minutes)" >&2
    install=(cargo install --quiet --locked --debug --no-default-features --features search)
    if ! "${install[@]}" --root "$tools" "mdbook@$version"; then
        echo "docs: mdbook could not be installed; install it by hand:" >&2
        echo "    cargo install --locked mdbook@$version" >&2
        exit 1
    fi
fi

book=$target/docs
rm -rf "$book"
mkdir -p "$book/src"
cp -r docs/. "$book/src"
beside=(README ARCHITECTURE BENCHMARKS CHANGELOG CONTRIBUTING SECURITY)
for page in "${beside[@]}"; do cp "$page.md" "$book/src"; done
cat >"$book/book.toml" <<'BOOK'
[book]
title = "Weft"
language = "en"
[output.html]
default-theme = "light"
preferred-dark-theme = "navy"
BOOK
cat >>"$book/src/SUMMARY.md" <<'PAGES'

# The project

- [How it is built](ARCHITECTURE.md)
- [What was measured](BENCHMARKS.md)
- [Changes](CHANGELOG.md)
- [Contributing](CONTRIBUTING.md)
- [Security](SECURITY.md)
PAGES
# Pages lie side by side in the book; what is no page of it is named without a link.
sources='crates|examples/|interop/|scripts|xtask|fuzz|Makefile|LICENSE|deny|benches'
sed -i -E "s,\]\((\.\./)?docs/,](,g; s,\]\(\.\./([A-Z]+\.md),](\1,g;
    s,\[([^]]*)\]\((\.\./)*($sources)[^)]*\),\1,g;
    s,\]\(SUMMARY\.md\),](README.md),g" "$book"/src/*.md

mdbook build "$book" --dest-dir "$book/site" >"$book/log" 2>&1 || {
    cat "$book/log" >&2
    exit 1
}
python3 - "$book/site" <<'CHECK'
import os, re, sys

root = sys.argv[1]
ids, links = {}, []
for directory, _, names in os.walk(root):
    for name in names:
        if not name.endswith(".html") or name in ("print.html", "404.html", "toc.html"):
            continue
        path = os.path.join(directory, name)
        text = open(path, encoding="utf-8").read()
        ids[path] = set(re.findall(r'id="([^"]+)"', text))
        links += [(path, link) for link in re.findall(r'(?:href|src)="([^"]+)"', text)]
broken = []
for path, link in links:
    if re.match(r"[a-z]+:|//", link):
        continue
    file, _, anchor = link.partition("#")
    target = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
    known = os.path.exists(target)
    if not known or (anchor and target in ids and anchor not in ids[target]):
        broken.append(f"{os.path.relpath(path, root)}: {link}")
if broken:
    sys.exit("docs: these links lead nowhere:\n" + "\n".join(sorted(set(broken))))
print(f"docs: {len(ids)} pages, {len(links)} links; {root}/index.html")
CHECK
