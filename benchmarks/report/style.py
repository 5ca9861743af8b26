"""The page's style: light and dark, for a phone first, nothing fetched."""

CSS = """
:root{color-scheme:light dark;--ground:#fbfbf9;--card:#fff;--ink:#16181d;--soft:#5b616e;--rule:#e3e4e0;--faint:#f0f0ec;
--tint:#eaf2fc;--good:#0a6b2e;--bad:#b3261e;--badtint:#fdecea;--warn:#8a5a00;--warntint:#fdf3dc;
--c0:#2a78d6;--c1:#e34948;--c2:#d99100;--c3:#1baf7a;--c4:#eb6834;--c5:#4a3aa7;--c6:#0a7a1f;--c7:#d65a8d;--c8:#8a8f99}
@media(prefers-color-scheme:dark){:root{--ground:#121316;--card:#1b1d21;--ink:#eceef1;--soft:#a1a7b3;--rule:#31343a;
--faint:#24272c;--tint:#182a40;--good:#6fd08c;--bad:#ff8a80;--badtint:#3a1d1b;--warn:#f0c267;--warntint:#33290f;
--c0:#4c97ee;--c1:#ec6f6c;--c2:#d9a02b;--c3:#2cb888;--c4:#e8743f;--c5:#9d93ee;--c6:#3fa34d;--c7:#e0749f;--c8:#7d838e}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;scroll-behavior:smooth}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px 16px 64px}
h1{font-size:1.75rem;line-height:1.2;margin:.2em 0 .1em;letter-spacing:-.015em}
h2{font-size:1.28rem;margin:2.2em 0 .5em;letter-spacing:-.01em;scroll-margin-top:12px}
h3{font-size:1rem;margin:1.7em 0 .5em}h4{font-size:.95rem;margin:1.4em 4px .2em}
p{margin:.4em 0}.soft{color:var(--soft)}.small{font-size:.86rem}
a{color:var(--c0);text-decoration:none}a:hover{text-decoration:underline}
.tag{display:inline-block;border-radius:99px;padding:.05em .7em;font-size:.8rem;font-weight:600;background:var(--tint);
color:var(--c0);vertical-align:middle}
.tag.warn{background:var(--warntint);color:var(--warn)}.tag.bad{background:var(--badtint);color:var(--bad)}
.tag.good{color:var(--good);background:var(--faint)}
nav{display:flex;flex-wrap:wrap;gap:6px;margin:14px 0 4px}
nav a{border:1px solid var(--rule);background:var(--card);border-radius:99px;padding:.15em .8em;font-size:.86rem;color:var(--ink)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:16px 0}
.tile{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:12px 14px}
.tile b{display:block;font-size:1.5rem;line-height:1.25;letter-spacing:-.02em}.tile span{color:var(--soft);font-size:.84rem}
.reading{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:6px 18px 8px}
.reading ul,.plain{padding-left:1.15em;margin:.5em 0}.reading li,.plain li{margin:.45em 0;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--rule);border-radius:12px;padding:14px;margin:14px 0;min-width:0}
.card>h3:first-child{margin-top:.1em}
.scroll{overflow-x:auto;-webkit-overflow-scrolling:touch;border:1px solid var(--rule);border-radius:10px;background:var(--card)}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:7px 11px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--rule)}
th{font-weight:600;color:var(--soft);font-size:.78rem;background:var(--card)}
tr:last-child td{border-bottom:0}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card);z-index:1}
td:first-child{border-right:1px solid var(--faint);max-width:46vw;white-space:normal;min-width:120px}
td.words,th.words{text-align:left;white-space:normal;min-width:230px}
tr.ours td,tr.ours td:first-child{background:var(--tint);font-weight:600}
tr.ours td.words{font-weight:400}
table.texts th,table.texts td{text-align:left}
table.texts td{white-space:normal}table.texts td:nth-child(2){min-width:110px}
td.yes{color:var(--good);font-weight:600}td.no{color:var(--bad);font-weight:600}
.facts td:first-child{color:var(--soft);white-space:nowrap;min-width:0}.facts td:last-child{text-align:left;white-space:normal}
svg{display:block;max-width:100%;height:auto;margin:4px auto}
.narrow{display:none}
@media(max-width:700px){.wide{display:none}.narrow{display:block}main{padding:14px 12px 48px}.card{padding:12px 8px}
.card>h3,.card>p,.card>.legend{margin-left:4px;margin-right:4px}h1{font-size:1.5rem}}
svg text{font:12px system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;fill:var(--soft)}
svg text.row{fill:var(--ink);font-weight:600}svg text.name{fill:var(--soft)}
.grid{stroke:var(--rule)}.faint{stroke:var(--faint)}.axis{stroke:var(--soft)}.one{stroke:var(--ink);stroke-width:1.4}
.span{stroke:var(--rule);stroke-width:3;stroke-linecap:round}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.mark{stroke:var(--card);stroke-width:1.2}
.ring{fill:none;stroke:var(--ink);stroke-width:1.5;stroke-dasharray:3 2}
.line.c0{stroke:var(--c0);stroke-width:2.6}.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}.line.c3{stroke:var(--c3)}
.line.c4{stroke:var(--c4)}.line.c5{stroke:var(--c5)}.line.c6{stroke:var(--c6)}.line.c7{stroke:var(--c7)}.line.c8{stroke:var(--c8)}
.mark.c0{fill:var(--c0)}.mark.c1{fill:var(--c1)}.mark.c2{fill:var(--c2)}.mark.c3{fill:var(--c3)}
.mark.c4{fill:var(--c4)}.mark.c5{fill:var(--c5)}.mark.c6{fill:var(--c6)}.mark.c7{fill:var(--c7)}.mark.c8{fill:var(--c8)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;list-style:none;padding:0;margin:6px 0 4px;font-size:.86rem}
.legend li{display:flex;align-items:center;gap:6px}.legend svg{margin:0;flex:none}
.alert{border:1px solid var(--bad);background:var(--badtint);border-radius:12px;padding:4px 18px}
details summary{cursor:pointer;color:var(--c0);font-size:.9rem;padding:6px 4px}
code{font-size:.85em;overflow-wrap:anywhere}
@media print{nav,details summary{display:none}.card,.scroll,.tile{break-inside:avoid}}
"""
