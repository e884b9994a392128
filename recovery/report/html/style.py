"""The style sheet, for light and dark screens from 360 pixels on, and for paper.

The colours follow Okabe and Ito, whose palette people with any colour vision can distinguish. A gap separates adjacent
colours.
"""

_COLOURS = {
    # tone: (on light, on dark)
    "detected": ("#d55e00", "#e8762c"),
    "decided": ("#8a6d00", "#f0e442"),
    "stopping": ("#7a5195", "#b48ad6"),
    "fencing": ("#a8447f", "#cc79a7"),
    "tearing-down": ("#e69f00", "#e69f00"),
    "backoff": ("#8c8c8c", "#9a9a9a"),
    "scheduling": ("#56b4e9", "#56b4e9"),
    "starting": ("#0072b2", "#2f93d0"),
    "rendezvous": ("#009e73", "#00b486"),
    "resuming": ("#66c9a9", "#8fe0c6"),
    "held": ("#333333", "#e0e0e0"),
    "released": ("#c8c8c8", "#5a5a5a"),
    "plain": ("#0072b2", "#56b4e9"),
    "computed": ("#8c8c8c", "#9a9a9a"),
}


def _variables(dark: bool) -> str:
    return "".join(f"--{tone}:{colours[dark]};" for tone, colours in _COLOURS.items())


_TONES = "".join(f".tone-{tone}{{fill:var(--{tone})}}.bg-{tone}{{background:var(--{tone})}}" for tone in _COLOURS)

_RULES = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:66rem;padding:1.5rem 1.25rem 3rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.25rem;line-height:1.3;margin:2.25rem 0 .75rem;padding-top:.75rem;border-top:1px solid var(--line)}
h3{font-size:1.05rem;margin:1.5rem 0 .5rem}
header p,footer p,.note{color:var(--dim)}
footer{margin-top:2.5rem;border-top:1px solid var(--line)}
footer p,.note{font-size:.875rem}
blockquote{margin:1rem 0;padding:.5rem 1rem;border-left:4px solid var(--plain);background:var(--card)}
blockquote p{margin:0}
pre{margin:1rem 0;padding:.5rem 1rem;background:var(--card);white-space:pre-wrap;overflow-wrap:anywhere}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.5rem,1fr));gap:.75rem;margin:1rem 0}
.figures div{background:var(--card);border-radius:6px;padding:.75rem .9rem}
dt{font-size:.8rem;color:var(--dim)}
dd{margin:0;font-size:1.2rem;font-weight:600;line-height:1.3}
dd.note{font-weight:400;margin-top:.15rem;font-size:.8rem}
figure{margin:1rem 0}
figcaption,caption{font-size:.875rem;color:var(--dim);text-align:left;margin-bottom:.35rem;padding:0}
svg{display:block;width:100%}
svg.stacked{height:2.25rem;border-radius:4px}
svg.stacked rect{stroke:var(--paper);stroke-width:1.5;vector-effect:non-scaling-stroke}
svg.line{height:.8rem;min-width:7rem}
td.bars{width:26%;vertical-align:middle}
table{width:100%;border-collapse:collapse;margin:1.25rem 0 .5rem;font-size:.9rem}
caption{margin-bottom:.5rem}
th{font-weight:600;font-size:.8rem;color:var(--dim);border-bottom:1px solid var(--dim)}
th,td{text-align:left;vertical-align:top;padding:.4rem .75rem .4rem 0}
td{border-bottom:1px solid var(--line)}
.table{overflow-x:auto}
td.name,td.number,td.time,th{overflow-wrap:normal}
td.number,td.time{white-space:nowrap}
td.prose{width:55%}
.number{text-align:right;font-variant-numeric:tabular-nums}
.key{display:inline-block;width:.75em;height:.75em;margin-right:.5em;border-radius:2px}
@media screen and (max-width:44rem){
body{padding:1rem .9rem 2rem}
h1{font-size:1.4rem}
.figures{grid-template-columns:repeat(2,minmax(0,1fr));gap:.5rem}
dd{font-size:.95rem}
.figures div{padding:.6rem .65rem}
table,tbody,tr,td,caption{display:block;width:auto}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
tbody tr{border-bottom:1px solid var(--line);padding:.5rem 0}
td,td.number,td.name,td.time,td.prose{width:auto;overflow-wrap:anywhere;white-space:normal}
td,td.number{display:flex;justify-content:space-between;gap:1rem;border:0;padding:.15rem 0;text-align:right}
td::before{content:attr(data-label);color:var(--dim);text-align:left;flex:0 0 38%}
td:first-child{justify-content:flex-start;align-items:center;text-align:left;font-weight:600;gap:0}
td:first-child::before{content:none}
td.number:first-child::before{content:attr(data-label);flex:none;margin-right:.5em}
td.prose{display:block;text-align:left}
td.prose::before{display:block}
td.bars{display:block;width:auto;padding-top:.35rem}
td.bars::before{content:none}
}
@media print{
body{max-width:none;padding:0;font-size:10pt}
@page{margin:12mm}
.table{overflow:visible}
table{font-size:7.5pt}
th{font-size:7pt}
.note,caption,figcaption,footer p{font-size:8pt}
th,td{padding:.2rem .5rem .2rem 0}
td.bars{width:20%}
svg.line{min-width:4rem}
.figures{grid-template-columns:repeat(5,1fr)}
dd{font-size:11pt}
h2{margin-top:1.25rem}
.short{break-inside:avoid}
svg,.key,.figures div,blockquote{print-color-adjust:exact;-webkit-print-color-adjust:exact}
h2,h3,caption{break-after:avoid}
tr,figure,.figures,blockquote{break-inside:avoid}
thead{display:table-header-group}
}
"""

_LIGHT = f"--paper:#fff;--card:#f3f5f7;--ink:#16191d;--dim:#545c66;--line:#dde1e6;{_variables(dark=False)}"
_DARK = f"--paper:#14171a;--card:#1f2429;--ink:#e9ecef;--dim:#a7b0ba;--line:#353c44;{_variables(dark=True)}"

STYLE = (
    f":root{{color-scheme:light dark;{_LIGHT}}}"
    f"@media screen and (prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    f"{_RULES}{_TONES}"
)
