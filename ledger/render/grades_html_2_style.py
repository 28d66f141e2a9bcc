"""The style sheet of version 2 of grades as a page, and the policy that allows it and nothing else.

Of one family with the page of a report. Colours hold 4.5 : 1 for text and 3 : 1 for shapes on their ground, in light
and dark; what a colour says, a word or a letter says too. Grades were issued with these bytes: they never change.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; --page: #f4f6f8; --card: #fff; --text: #1a2129; --dim: #55606b; --line: #d5dbe1;
  --soft: #eef1f4; --link: #0b5cad; --bar: #2f6fb5; --good: #1b7f4b; --bad: #b3261e; --on: #fff; --heat: 47, 111, 181;
  --a: #1b7f4b; --b: #a35200; --c: #7b3fa0; --d: #64707b; --e: #2f6fb5; --f: #b3261e }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #0f1317; --card: #181d23; --text: #e4e9ee; --dim: #a3aeb9; --line: #333c45; --soft: #222931;
    --link: #8cc1ff; --bar: #7ab3f0; --good: #4fc98a; --bad: #ff8a80; --on: #10151a; --heat: 122, 179, 240;
    --a: #4fc98a; --b: #f0a44b; --c: #c99be6; --d: #9aa7b3; --e: #7ab3f0; --f: #ff8a80 }
}
* { box-sizing: border-box }
html { background: var(--page); color: var(--text); scroll-padding-top: 1rem }
body { font: .9375rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 80rem; padding: 1.25rem }
h1, h2, h3, p, ul, ol, dl, dd, figure, table { margin: 0 }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere }
h2 { font-size: 1.125rem; margin-bottom: .75rem }
h3 { font-size: .9375rem; margin: 0 0 .375rem }
a { color: var(--link) }
a:focus-visible, [tabindex]:focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
p, li { overflow-wrap: anywhere }
p + p, p + svg, svg + p, ul + p, ol + p, .cards + p { margin-top: .5rem }
p + .cards { margin-top: .75rem }
ul, ol { padding-left: 1.25rem }
code { background: var(--soft); border-radius: 3px; font: .875em/1.4 ui-monospace, monospace; overflow-wrap: anywhere;
  padding: .1em .3em }
small { color: var(--dim); font-size: .75rem }
header, nav, section { margin-bottom: 1rem }
section { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: 1rem 1.25rem }
nav ul { display: flex; flex-wrap: wrap; gap: .125rem 1rem; list-style: none; padding: 0 }
.two { display: grid; gap: 1rem; grid-template-columns: 1fr 1fr; margin-bottom: 1rem }
.two section { margin: 0; min-width: 0 }
.yes, .no, .open { border-left-width: .5rem }
.yes { border-left-color: var(--good) }
.no { border-left-color: var(--bad) }
.two h2 { font-size: 1.25rem }
.yes h2 span { color: var(--good) }
.no h2 span { color: var(--bad) }
.two svg { max-width: 24rem }
.cards { display: grid; gap: 1.25rem 2.5rem; grid-template-columns: repeat(auto-fit, minmax(min(25rem, 100%), 1fr)) }
.cards > * { align-self: start; min-width: 0 }
.cards + .left, .left + .left, .stack + .cards { margin-top: 1.25rem }
dl { align-content: start; display: grid; gap: .25rem 1rem; grid-template-columns: minmax(6rem, max-content) 1fr }
dt { color: var(--dim) }
dd { min-width: 0; overflow-wrap: anywhere }
dl + h3, ol + h3, p + h3 { margin-top: 1.25rem }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
caption { color: var(--dim); font-size: .8125rem; padding: .25rem 0; text-align: left }
th, td { border-bottom: 1px solid var(--line); font-weight: inherit; padding: .25rem .75rem .25rem 0; text-align: left;
  vertical-align: top }
thead th { color: var(--dim); font-size: .8125rem; vertical-align: bottom }
tfoot { font-weight: 600 }
tfoot th, tfoot td { border: 0 }
th:last-child, td:last-child { padding-right: 0 }
td, .n { font-variant-numeric: tabular-nums }
.n { text-align: right; white-space: nowrap }
svg { display: block }
.plot { width: 30% }
.plot svg { margin-top: .3125rem }
.track { fill: var(--soft) }
.span { fill: var(--bar) }
.point { fill: var(--text); transform: translateX(-2px) }
.part { stroke: var(--card); stroke-width: 2 }
.letter { fill: var(--on); font-size: .875rem; font-weight: 600; text-anchor: middle }
b.a, b.b, b.c, b.d, b.e, b.f { border-radius: 3px; color: var(--on); display: inline-block; font-size: .75rem;
  line-height: 1.125rem; margin-right: .5rem; text-align: center; width: 1.125rem }
b.a { background: var(--a) }
b.b { background: var(--b) }
b.c { background: var(--c) }
b.d { background: var(--d) }
b.e { background: var(--e) }
b.f { background: var(--f) }
rect.a { fill: var(--a) }
rect.b { fill: var(--b) }
rect.c { fill: var(--c) }
rect.d { fill: var(--d) }
rect.e { fill: var(--e) }
rect.f { fill: var(--f) }
.heat { table-layout: fixed }
.cards > div > .scroll + .scroll { margin-top: 1rem }
.heat th, .heat td { padding: .375rem .5rem; vertical-align: middle }
.heat tbody th { padding-left: 0 }
.heat td { border: 2px solid var(--card); height: 3.25rem; line-height: 1.2; text-align: right }
.heat thead th { border: 0; padding-bottom: .125rem; text-align: right }
.heat thead [rowspan] { padding-left: 0; text-align: left }
.heat thead .over { border-bottom: 1px solid var(--line); text-align: center }
.h0 { color: var(--dim) }
.h1 { background: rgba(var(--heat), .1) }
.h2 { background: rgba(var(--heat), .19) }
.h3 { background: rgba(var(--heat), .28) }
.h4 { background: rgba(var(--heat), .37) }
.h5 { background: rgba(var(--heat), .46) }
.heat .right { outline: 2px solid var(--good); outline-offset: -4px }
.heat .watch { outline: 2px solid var(--bad); outline-offset: -4px }
.heat .watch small { color: inherit; display: block }
.list { display: grid; gap: 0 1rem; list-style: none;
  grid-template-columns: repeat(auto-fill, minmax(min(9rem, 100%), 1fr)); margin-top: .5rem; max-height: 20rem;
  overflow: auto; padding: 2px }
@media (max-width: 56rem) { .two { grid-template-columns: 1fr } }
@media screen and (max-width: 40rem) {
  body { padding: .75rem }
  section { padding: .75rem }
  dl { gap: 0; grid-template-columns: minmax(0, 1fr) }
  dd { margin-bottom: .375rem }
  table { font-size: .875rem }
  .plot, .drawn { display: none }
  .n:nth-last-child(2) { padding-right: 0 }
  .heat { font-size: .8125rem; table-layout: auto }
  .heat th, .heat td { padding: .375rem .375rem .375rem .25rem }
  .heat td { height: 2.75rem }
  .heat thead th, .heat small { font-size: .75rem }
}
@media print {
  @page { margin: 12mm }
  :root { color-scheme: light }
  html { background: none; font-size: 9.5pt }
  body { font-size: 1rem; max-width: none; padding: 0 }
  nav { display: none }
  section { padding: .5rem .75rem; print-color-adjust: exact; -webkit-print-color-adjust: exact }
  .two { grid-template-columns: 1fr 1fr }
  .plot { width: 16% }
  .cards { gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)) }
  th, td { padding-bottom: .125rem; padding-top: .125rem }
  dl { row-gap: .0625rem }
  .cards + .left, .left + .left, .stack + .cards { margin-top: .5rem }
  h2, h3, caption, thead, .stack { break-after: avoid }
  tfoot { break-before: avoid }
  tr, figure, .heat, .keep { break-inside: avoid }
  .heat td { height: 2.5rem }
  .list { grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); max-height: none; overflow: visible }
  a { color: inherit; text-decoration: none }
}
"""
POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(sha256(STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'"
)
