# SPDX-License-Identifier: Apache-2.0
# Reports: one page from a set of results, with and without gnuplot, opened in a browser if there is one.

inputs
refused "report: one folder of results" report --out r.html
refused "report: --out FILE.html is missing" report q.npy
refused "report: nowhere: No such file" report nowhere --out r.html
refused "line 1 is no row of results" report q.npy --out r.html
mkdir none
refused "report: none has no results" report none --out r.html

# Rows of several suites, of problems that take no time.
ok bench memory --quick --match n=512 --out some
ok bench scaling --quick --match "n=1024 h=2 d=64 f32" --out some
refused "--out: r.txt does not end in .html" report some --out r.txt
refused "cannot write into" report some --out nowhere/r.html

# Without gnuplot: tables only, and says so.
(PATH=/nonexistent "$ringattn" report some --out bare.html >"$work/out" 2>"$work/err")
says "without plots: gnuplot was not found"
grep -q "<table>" bare.html && ! grep -q "<svg" bare.html && pass || fail "a report without gnuplot"
[ ! -e bare-plots ] && pass || fail "pictures without gnuplot"

ok report some --out r.html
says "r.html and r.md: "
# What is missing is left out, and named.
grep -q 'id="memory"' r.html && grep -q 'id="scaling"' r.html && ! grep -q 'id="compare"' r.html && pass || fail "sections of a report"
grep -q "Not in these results, and left out above: <code>compare</code>, <code>extreme</code>" r.html && pass ||
    fail "missing suites are not named"
grep -q "^## Memory" r.md && grep -q '^| standard | 512 |' r.md && pass || fail "the report as Markdown"
# Every figure of the reports has its line.
[ "$(grep -c '<td class="n" data-v="[1-5]">[1-5]</td><td>[A-Z][A-Za-z0-9]*</td>' r.html)" -ge 60 ] && pass || fail "figures of the reports"
# Nothing comes from elsewhere.
if sed 's|http://www.w3.org/[0-9a-z/]*||g' r.html | grep -q -e 'http' -e 'src=' -e '@import'; then fail "the page needs a network"; else pass; fi

if command -v gnuplot >/dev/null; then
    grep -q 'style="stroke:var(--line-1)"' r.html && pass || fail "colours of plots"
    if grep -q 'rgb( *0, *[0-9]*, *[0-9]*)' r.html; then fail "a colour of plots was not replaced"; else pass; fi
    [ -s r-plots/memory-by-length.png ] || [ -s r-plots/error-by-ring.png ] && pass || fail "no pictures"
    grep -q '!\[.*\](r-plots/.*png)' r.md && pass || fail "no pictures in Markdown"
else
    echo "report: gnuplot is not here; plots are not tested"
fi

# A browser builds the table of contents and finds nothing to complain about.
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -n "$browser" ]; then
    page=file://$(pwd)/r.html
    HOME=$work timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --enable-logging=stderr --dump-dom "$page" >dom.html 2>browser.log
    grep -q '<a href="#memory">Memory</a>' dom.html && pass || { fail "the page's script did not run"; tail -3 browser.log; }
    if grep -q ':CONSOLE' browser.log; then fail "the browser complains"; grep ':CONSOLE' browser.log; else pass; fi
    for width in 1200 400; do
        HOME=$work timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size=$width,1600 \
            --screenshot="$width.png" "$page" >/dev/null 2>&1
        [ -s "$width.png" ] && pass || fail "no picture at $width columns"
    done
else
    echo "report: Chromium is not here; the page is not opened"
fi
