/* Colours of the plots. Eight hues that stay apart for the colour-blind, in a darker set for light
 * pages and a lighter set for dark ones. No CSS variables: converters from SVG to PNG do not know
 * them. */
#include "report/plot.h"

#define COLOUR(k, hex) ".c" #k "{stroke:" hex "}.f" #k "{fill:" hex "}"

const char hl_plot_css[] =
    ".plot{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif}"
    ".plot text{fill:#57606a;font-size:12px}"
    ".plot .ti{fill:#1f2328;font-size:14px;font-weight:600}"
    ".plot .un{fill:#818b98;font-weight:400;font-size:12px}"
    ".plot .bg{fill:#fff;stroke:#d8dee4}"
    ".plot .gr{stroke:#eaeef2;stroke-width:1}.plot .ax{stroke:#c4ccd4;stroke-width:1}"
    ".plot .li{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    ".plot .fa{fill:none;stroke-width:1;stroke-opacity:.34;stroke-linejoin:round}"
    ".plot .da{stroke-dasharray:5 4}"
    ".plot .pt{stroke:#fff;stroke-width:1}"
    ".plot .bad{stroke:#cf222e;stroke-width:2;stroke-linecap:round}"
    ".plot .hit{fill:transparent;stroke:none}"
    ".plot .ho>:not(.hit){visibility:hidden}.plot .ho:hover>:not(.hit){visibility:visible}"
    ".plot .gu{stroke:#818b98;stroke-width:1}.plot "
    ".ro{fill:#1f2328;font-variant-numeric:tabular-nums}" COLOUR(0, "#2563d9") COLOUR(
        1, "#d9600b") COLOUR(2, "#11875a") COLOUR(3, "#8b45c6") COLOUR(4, "#c92a5f")
        COLOUR(5, "#0b7f96") COLOUR(6, "#8a6414") COLOUR(
            7, "#5c6773") "@media(prefers-color-scheme:dark){"
                          ".plot text{fill:#9aa4af}.plot .ti,.plot .ro{fill:#e6edf3}.plot "
                          ".un{fill:#7d8792}"
                          ".plot .bg{fill:#12171e;stroke:#2b323b}.plot .gr{stroke:#222a33}.plot "
                          ".ax{stroke:#3d4650}.plot .pt{stroke:#12171e}"
                          ".plot .fa{stroke-opacity:.42}.plot .bad{stroke:#ff6b64}.plot "
                          ".gu{stroke:#7d8792}" COLOUR(0, "#6ea8ff") COLOUR(1, "#ff9d5c")
                              COLOUR(2, "#4cc995") COLOUR(3, "#c493f5") COLOUR(4, "#ff7fa5")
                                  COLOUR(5, "#4cc3d9") COLOUR(6, "#d9b25f")
                                      COLOUR(7, "#a9b3be") "}";
