"""The style sheet of version 2 of a report's page, and the policy that allows it and nothing else.

Colours hold 4.5 : 1 for text and 3 : 1 for shapes on their ground, in light and dark; what a colour says,
a word or a letter says too. Reports were issued with these bytes: they never change.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --page: #f4f6f8; --card: #fff; --text: #1a2129; --dim: #55606b; --line: #d5dbe1;
  --soft: #eef1f4; --link: #0b5cad; --bar: #2f6fb5; --good: #1b7f4b; --bad: #b3261e; --on: #fff; --heat: 47, 111, 181;
  --a: #1b7f4b; --b: #2f6fb5; --c: #a35200; --d: #b3261e; --e: #7b3fa0; --f: #64707b; --g: #0f7480 }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #0f1317; --card: #181d23; --text: #e4e9ee; --dim: #a3aeb9; --line: #333c45; --soft: #222931;
    --link: #8cc1ff; --bar: #7ab3f0; --good: #4fc98a; --bad: #ff8a80; --on: #10151a; --heat: 122, 179, 240;
    --a: #4fc98a; --b: #7ab3f0; --c: #f0a44b; --d: #ff8a80; --e: #c99be6; --f: #9aa7b3; --g: #6fcbd6 }
}
* { box-sizing: border-box }
html { background: var(--page); color: var(--text); scroll-padding-top: 1rem }
body { font: .9375rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1.25rem }
h1, h2, h3, p, ul, ol, dl, dd, figure, table { margin: 0 }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere }
h2 { font-size: 1.125rem; margin-bottom: .75rem }
h3 { font-size: .9375rem; margin: 1.25rem 0 .375rem; overflow-wrap: anywhere }
h2 + h3 { margin-top: 0 }
a { color: var(--link) }
.escape { background: var(--bad); border-radius: 3px; color: var(--on); padding: 0 .15em }
a:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
p + p, p + ul, p + ol, ul + p, ol + p, dl + p, table + p, div + p { margin-top: .5rem }
ul, ol { padding-left: 1.25rem }
code { background: var(--soft); border-radius: 3px; font: .875em/1.4 ui-monospace, monospace; overflow-wrap: anywhere;
  padding: .1em .3em }
small, .dim { color: var(--dim); font-size: .8125rem }
header, nav, section, footer { margin-bottom: 1rem }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem 1.25rem }
nav ul { display: flex; flex-wrap: wrap; gap: .125rem 1rem; list-style: none; padding: 0 }
.two { display: grid; gap: 1rem; grid-template-columns: 3fr 2fr }
.two section { margin: 0 }
.two + section { margin-top: 1rem }
.yes { border-left: .5rem solid var(--good) }
.no { border-left: .5rem solid var(--bad) }
.yes h2, .no h2 { font-size: 1.25rem }
.yes h2 span { color: var(--good) }
.no h2 span { color: var(--bad) }
.cards { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(min(21rem, 100%), 1fr)) }
dl { align-content: start; display: grid; gap: .25rem 1rem; grid-template-columns: minmax(6rem, max-content) 1fr }
dt { color: var(--dim) }
dd { min-width: 0; overflow-wrap: anywhere }
dd ul { list-style: none; padding: 0 }
.wide { grid-template-columns: repeat(auto-fit, minmax(min(28rem, 100%), 1fr)) }
.flow { display: flex; flex-wrap: wrap; gap: 1.25rem 3rem }
.flow > div { max-width: 100% }
.flow dl, p + .cards { margin-top: .5rem }
.flow h3, .cards > div > h3:first-child { margin-top: 0 }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
.narrow { max-width: 40rem }
caption { color: var(--dim); font-size: .8125rem; overflow-wrap: anywhere; padding: .25rem 0; text-align: left }
th, td { border-bottom: 1px solid var(--line); font-weight: inherit; overflow-wrap: anywhere;
  padding: .25rem .75rem .25rem 0;
  text-align: left; vertical-align: top }
thead th { color: var(--dim); font-size: .8125rem; vertical-align: bottom }
tfoot { font-weight: 600 }
th:last-child, td:last-child { padding-right: 0 }
tfoot th, tfoot td { border: 0 }
td, .n { font-variant-numeric: tabular-nums }
.n { text-align: right; white-space: nowrap }
svg { display: block }
.part { stroke: var(--card); stroke-width: 2 }
.track { fill: var(--soft) }
.fill { fill: var(--bar) }
.letter { fill: var(--on); font-size: .875rem; font-weight: 600; text-anchor: middle }
.axis { fill: var(--dim); font-size: .6875rem; text-anchor: middle }
.count { fill: var(--text) }
.base { stroke: var(--line) }
.stack { margin-bottom: .75rem }
.a .key, b.a { background: var(--a) }
.b .key, b.b { background: var(--b) }
.c .key, b.c { background: var(--c) }
.d .key, b.d { background: var(--d) }
.e .key, b.e { background: var(--e) }
.f .key, b.f { background: var(--f) }
.g .key, b.g { background: var(--g) }
rect.a { fill: var(--a) }
rect.b { fill: var(--b) }
rect.c { fill: var(--c) }
rect.d { fill: var(--d) }
rect.e { fill: var(--e) }
rect.f { fill: var(--f) }
rect.g { fill: var(--g) }
b.a, b.b, b.c, b.d, b.e, b.f, b.g { border-radius: 3px; color: var(--on); display: inline-block; font-size: .75rem;
  line-height: 1.125rem; margin-right: .5rem; text-align: center; width: 1.125rem }
.meter { width: 34% }
.meter svg { margin-top: .4375rem }
.heat { max-width: 46rem; table-layout: fixed }
.heat th, .heat td { padding: .375rem .75rem; vertical-align: middle }
.heat td { border: 2px solid var(--card); height: 3.25rem; text-align: right }
.heat thead th + th { text-align: right }
.h0 { color: var(--dim) }
.h1 { background: rgba(var(--heat), .1) }
.h2 { background: rgba(var(--heat), .19) }
.h3 { background: rgba(var(--heat), .28) }
.h4 { background: rgba(var(--heat), .37) }
.h5 { background: rgba(var(--heat), .46) }
.heat .watch { outline: 2px solid var(--bad); outline-offset: -4px }
.heat .watch small { color: inherit }
.heat .watch a { color: inherit; display: block; line-height: 1.25 }
.list { display: grid; gap: 0 1rem; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(min(14rem, 100%), 1fr)); margin-top: .5rem; max-height: 20rem;
  overflow: auto; padding: 2px }
.long { grid-template-columns: repeat(auto-fill, minmax(min(34rem, 100%), 1fr)) }
.list li { overflow-wrap: anywhere }
.rows { content-visibility: auto; contain-intrinsic-size: auto 3000px }
.rows table { border-collapse: separate; border-spacing: 0; font-size: .8125rem; table-layout: fixed }
.rows tr { scroll-margin-top: 2.5rem }
.rows th, .rows td { padding: .25rem .75rem .25rem 0 }
.rows thead th { background: var(--card); padding-top: .5rem; position: sticky; top: -.25rem }
.rows thead th:nth-child(1) { width: 4% }
.rows thead th:nth-child(2) { width: 15% }
.rows thead th:nth-child(3) { width: 13% }
.rows thead th:nth-child(4) { width: 7% }
.rows thead th:nth-child(5) { width: 7% }
.rows thead th:nth-child(7) { width: 5% }
.rows thead th:nth-child(8) { width: 8% }
.rows thead th:nth-child(9) { width: 7% }
.rows thead th:nth-child(10) { width: 15% }
.rows thead th:nth-child(11) { width: 8% }
.rows td:nth-child(1), .rows td:nth-child(n+7):not(:nth-child(10)), .rows thead th:nth-child(1),
.rows thead th:nth-child(n+7):not(:nth-child(10)) { text-align: right }
.rows thead th, .rows td:nth-child(4), .rows td:nth-child(5) { overflow-wrap: normal }
.rows tbody td:nth-child(3)::before { border-radius: 3px; color: var(--on); display: inline-block; font-size: .6875rem;
  font-weight: 600; line-height: 1rem; margin-right: .375rem; text-align: center; width: 1rem }
.rows .a td:nth-child(3)::before { background: var(--a); content: "A"; content: "A" / "" }
.rows .b td:nth-child(3)::before { background: var(--b); content: "B"; content: "B" / "" }
.rows .c td:nth-child(3)::before { background: var(--c); content: "C"; content: "C" / "" }
.rows .d td:nth-child(3)::before { background: var(--d); content: "D"; content: "D" / "" }
.rows .e td:nth-child(3)::before { background: var(--e); content: "E"; content: "E" / "" }
.rows .f td:nth-child(3)::before { background: var(--f); content: "F"; content: "F" / "" }
.rows .g td:nth-child(3)::before { background: var(--g); content: "G"; content: "G" / "" }
.rows tbody td:empty::before { color: var(--dim); content: "\\2013" }
tr:target { background: var(--soft) }
@media (max-width: 62rem) { .two { grid-template-columns: 1fr } }
@media screen and (max-width: 72rem) {
  .rows table, .rows tbody { display: block }
  .rows caption { display: block }
  .rows thead { clip-path: inset(50%); height: 1px; overflow: hidden; position: absolute; width: 1px }
  .rows tr { border-bottom: 1px solid var(--line); display: grid; gap: 0 1rem; padding: .5rem 0;
    grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)) }
  .rows tbody th, .rows tbody td { border: 0; padding: .9375rem 0 0; position: relative; text-align: left !important }
  .rows tbody td:empty { display: none }
  .rows tbody th { font-weight: 600; grid-column: 1 / -1; order: -1; padding: 0 }
  .rows td:nth-child(6), .rows td:nth-child(10) { grid-column: span 2 }
  .rows td::after { color: var(--dim); font-size: .6875rem; left: 0; position: absolute; top: 0 }
  .rows td:nth-child(1)::after { content: "line" }
  .rows td:nth-child(3)::after { content: "outcome" }
  .rows td:nth-child(4)::after { content: "risk" }
  .rows td:nth-child(5)::after { content: "answer says" }
  .rows td:nth-child(6)::after { content: "codes" }
  .rows td:nth-child(7)::after { content: "attempts" }
  .rows td:nth-child(8)::after { content: "calls took" }
  .rows td:nth-child(9)::after { content: "waited" }
  .rows td:nth-child(10)::after { content: "facets" }
  .rows td:nth-child(11)::after { content: "events" }
}
@media (max-width: 40rem) {
  body { padding: .75rem }
  section { padding: .75rem }
  dl { gap: 0; grid-template-columns: 1fr }
  dd { margin-bottom: .375rem }
  .heat th, .heat td { padding: .375rem .25rem }
  .heat { font-size: .8125rem }
}
@media print {
  @page { margin: 12mm }
  :root { color-scheme: light }
  html { background: none; font-size: 9.5pt }
  body { font-size: 1rem; max-width: none; padding: 0 }
  nav { display: none }
  section { padding: .5rem .75rem; print-color-adjust: exact; -webkit-print-color-adjust: exact }
  .two { grid-template-columns: 3fr 2fr }
  th, td { padding-bottom: .125rem; padding-top: .125rem }
  .wide { gap: 1rem 1.5rem; grid-template-columns: 1fr 1fr }
  .heat th, .heat td { padding: .25rem .375rem }
  .heat td { height: 2.25rem }
  dl { row-gap: .0625rem }
  h2, h3, caption, thead, .stack { break-after: avoid }
  tfoot { break-before: avoid }
  tr, figure, .keep, .heat { break-inside: avoid }
  .rows { content-visibility: visible }
  .rows table { font-size: 6.5pt }
  .rows th, .rows td { padding-right: .5rem }
  .rows thead th { font-size: inherit; padding-right: .5rem; padding-top: 0; position: static }
  .list { grid-template-columns: repeat(auto-fill, minmax(min(8rem, 100%), 1fr)); max-height: none; overflow: visible }
  .long { grid-template-columns: 1fr }
  a { color: inherit; text-decoration: none }
}
"""
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(sha256(STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'"
)
