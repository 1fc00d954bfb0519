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
additional-css = ["weft.css"]
BOOK
# Wider than mdBook has it, so that lines of 100 columns fit; tables that a phone can show.
cat >"$book/weft.css" <<'LOOK'
:root { --content-max-width: 860px; }
.content pre > code { font-size: .82em; }
.content table { font-size: .9em; margin: 0; }
.content table th, .content table td { padding: 4px 10px; vertical-align: top; }
.content .table-wrapper { margin: 0 0 1em; }
.content p > img { max-width: 100%; }
@media (max-width: 600px) {
  .content table { font-size: .8em; }
  .content table th, .content table td { padding: 3px 6px; }
  .content td code { white-space: normal; overflow-wrap: anywhere; }
  .content h1 { font-size: 1.6em; }
  .content p:has(> img[src$="demo.svg"]), .content p:has(> img[src$="overview.svg"]) {
    overflow-x: auto;
  }
  .content p > img[src$="demo.svg"], .content p > img[src$="overview.svg"] {
    max-width: none; width: 640px;
  }
}
LOOK
# ARCHITECTURE.md and BENCHMARKS.md have their places among the pages; the rest follows.
sed -i -e 's,^# Understand$,&\n\n- [Architecture](ARCHITECTURE.md),' \
    -e 's,^# Measure$,&\n\n- [What was measured](BENCHMARKS.md),' "$book/src/SUMMARY.md"
sed -i -e '/^- \[\(Architecture\|What was measured\)\]/{n;/^$/d}' "$book/src/SUMMARY.md"
cat >>"$book/src/SUMMARY.md" <<'PAGES'

# The project

- [Changes](CHANGELOG.md)
- [Contributing](CONTRIBUTING.md)
- [Security](SECURITY.md)
PAGES
# Pages lie side by side in the book, README.md as its index; what is no page of it is named without
# a link. A link may go over two lines.
sources='crates|examples/|interop/|scripts|xtask|fuzz|Makefile|LICENSE|deny|\.cargo'
perl -0pi -e "s,\]\((\.\./)?docs/,](,g; s,\]\(\.\./([A-Z]+\.md),](\$1,g;
    s,\[([^]]*)\]\((\.\./)*(\.\./|)($sources)[^)]*\),\$1,g;
    s,\]\(((README|SUMMARY)\.md)\),](index.md),g" \
    "$book"/src/[!S]*.md "$book"/src/S[!U]*.md
sed -i 's,](\.\./README\.md),](README.md),' "$book/src/SUMMARY.md"

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
