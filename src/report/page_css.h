/* The style sheet of the report page, apart from the plots' own. */
#ifndef HALLEY_REPORT_PAGE_CSS_H
#define HALLEY_REPORT_PAGE_CSS_H

static const char page_css[] =
    ":root{color-scheme:light dark;--bg:#f4f6f8;--card:#fff;--line:#d8dee4;--ink:#1f2328;--soft:#57606a;--pale:#818b98;"
    "--well:#f6f8fa;--warn-bg:#fff4e5;--warn:#8a4b00}"
    "@media(prefers-color-scheme:dark){:root{--bg:#0a0e13;--card:#12171e;--line:#2b323b;--ink:#e6edf3;--soft:#9aa4af;"
    "--pale:#7d8792;--well:#0d1218;--warn-bg:#2b1f0d;--warn:#f0b866}}"
    "*{box-sizing:border-box}"
    "body{margin:0;background:var(--bg);color:var(--ink);"
    "font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
    "main{max-width:1104px;margin:0 auto;padding:36px 16px 48px}"
    "header p{margin:0;color:var(--pale);font-size:12px;font-weight:600;letter-spacing:.08em;text-transform:uppercase}"
    "h1{margin:2px 0 20px;font-size:28px;line-height:1.2;letter-spacing:-.01em;overflow-wrap:anywhere}"
    "h2{margin:36px 0 12px;font-size:17px}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:10px;overflow:hidden}"
    ".card>svg{display:block;width:100%;height:auto}"
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(158px,1fr));gap:12px;margin-bottom:16px}"
    ".fact{padding:14px 16px}.fact b{display:block;font-size:25px;line-height:1.25;font-weight:650;letter-spacing:-.015em;"
    "font-variant-numeric:tabular-nums}.fact b small{font-size:14px;font-weight:500;color:var(--soft);letter-spacing:0}"
    ".fact span{display:block;color:var(--soft);font-size:13px}.fact i{display:block;color:var(--pale);font-size:12px;"
    "font-style:normal;min-height:1.5em}"
    ".grid{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:16px;margin-top:16px}"
    ".note{background:var(--warn-bg);color:var(--warn);border-radius:10px;padding:10px 16px;margin:0 0 16px}"
    ".sample{margin:0 0 12px}.sample summary{padding:10px 16px;color:var(--soft);font-size:13px;cursor:pointer}"
    ".sample pre{margin:0;padding:12px 16px;background:var(--well);border-top:1px solid var(--line);white-space:pre-wrap;"
    "overflow-wrap:anywhere;font:13px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace}"
    ".pairs{columns:2;column-gap:32px;padding:10px 16px}"
    ".pairs div{display:flex;justify-content:space-between;gap:16px;break-inside:avoid;padding:4px 0;"
    "border-bottom:1px solid var(--line);font-size:13px}"
    ".pairs dt{color:var(--soft);overflow-wrap:anywhere}"
    ".pairs dd{margin:0;text-align:right;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}"
    "dl{margin:0}.scroll{overflow-x:auto;margin-bottom:16px}table{border-collapse:collapse;width:100%;font-size:14px}"
    "th,td{padding:9px 16px;text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}"
    "th{color:var(--soft);font-weight:500;font-size:13px}tr+tr td{border-top:1px solid var(--line)}"
    "th:first-child,td:first-child{text-align:left}td small{color:var(--pale)}"
    ".key{display:inline-block;width:14px;height:14px;vertical-align:-2px;margin-right:8px}"
    "footer{margin-top:36px;color:var(--pale);font-size:12px}"
    "@media(max-width:720px){.grid{grid-template-columns:1fr}.pairs{columns:1}}"
    "@media print{body{background:none}.card{break-inside:avoid}}";

#endif
