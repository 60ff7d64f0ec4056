/* SPDX-License-Identifier: Apache-2.0 */
/* perf_scale_plot.c - the plot of `unisono perf --sweep` as SVG: throughput against size, both logarithmic, a line a series, a dot where it
 * stops growing with what limits it there. */
#include <math.h>

#include "output.h"
#include "perf_scale.h"

enum { WIDTH = 820, HEIGHT = 440, LEFT = 70, RIGHT = 230, TOP = 40, BOTTOM = 45 };

struct axes { double least_bytes, most_bytes, least, most; }; /* GB/s: powers of ten */

static double x_of(const struct axes *a, double bytes)
{
    double whole = log(a->most_bytes / a->least_bytes);
    return LEFT + (WIDTH - LEFT - RIGHT) * (whole > 0 ? log(bytes / a->least_bytes) / whole : 0.5);
}

static double y_of(const struct axes *a, double gb_s)
{
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * log(fmax(gb_s, a->least) / a->least) / log(a->most / a->least);
}

static struct axes axes_of(const struct scale *s)
{
    struct axes a = {1e300, 1, 1e300, 1e-300};
    for (int i = 0; i < s->count; i++)
        for (int p = 0; p < s->series[i].count; p++) {
            const struct scale_point *point = &s->series[i].points[p];
            double bytes = fmax((double)point->bytes, 1);
            a.least_bytes = fmin(a.least_bytes, bytes);
            a.most_bytes = fmax(a.most_bytes, bytes);
            if (point->gb_s > 0) {
                a.least = fmin(a.least, point->gb_s);
                a.most = fmax(a.most, point->gb_s);
            }
        }
    if (a.least > a.most)
        a.least = a.most = 1;
    a.least = pow(10, floor(log10(a.least)));
    a.most = pow(10, ceil(log10(a.most) + 1e-9));
    return a;
}

static void draw_grid(const struct scale *s, const struct axes *a, FILE *f)
{
    char size[32];
    for (double y = a->least; y <= a->most * 1.001; y *= 10)
        fprintf(f, "<path d=\"M%d %.1fH%d\" stroke=\"#ddd\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT, y_of(a, y),
                WIDTH - RIGHT, LEFT - 6, y_of(a, y) + 4, y);
    const struct scale_series *r = &s->series[0];
    int each = r->count / 8 + 1;
    for (int p = 0; p < r->count; p += each) {
        double x = x_of(a, fmax((double)r->points[p].bytes, 1));
        fprintf(f, "<path d=\"M%.1f %dV%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, TOP, HEIGHT - BOTTOM,
                x, HEIGHT - BOTTOM + 18, out_bytes(size, sizeof size, r->points[p].bytes));
    }
}

static void draw_series(const struct scale *s, const struct axes *a, int i, FILE *f)
{
    static const char *const colours[] = {"#c0143c", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#bcbd22"};
    const struct scale_series *r = &s->series[i];
    const char *colour = colours[i % (int)(sizeof colours / sizeof colours[0])];
    char name[64];
    int knee = scale_knee(r), y = TOP + 12 + 16 * i;
    fprintf(f, "<path d=\"");
    for (int p = 0; p < r->count; p++)
        fprintf(f, "%s%.1f %.1f", p ? "L" : "M", x_of(a, fmax((double)r->points[p].bytes, 1)), y_of(a, r->points[p].gb_s));
    fprintf(f, "\" fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"%s/>\n", colour, r->bound ? "" : " stroke-dasharray=\"5 4\"");
    fprintf(f, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x_of(a, fmax((double)r->points[knee].bytes, 1)),
            y_of(a, r->points[knee].gb_s), colour);
    scale_name(s, r, name, sizeof name);
    fprintf(f, "<path d=\"M%d %dh20\" stroke=\"%s\" stroke-width=\"1.8\"%s/><text x=\"%d\" y=\"%d\">%s: %s</text>\n", WIDTH - RIGHT + 12, y - 4, colour,
            r->bound ? "" : " stroke-dasharray=\"5 4\"", WIDTH - RIGHT + 38, y, name, scale_limited_by(s, r, knee));
}

bool scale_plot(const struct scale *s, const char *path)
{
    struct axes a = axes_of(s);
    FILE *f = fopen(path, "we");
    if (!f)
        return false;
    fprintf(f, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"11\">\n"
               "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
               "<text x=\"%d\" y=\"22\" font-size=\"13\">%s: GB/s (busbw, all communicators) by size; a dot: where it stops growing, and what limits it"
               "</text>\n", WIDTH, HEIGHT, LEFT, s->o->coll->name);
    draw_grid(s, &a, f);
    for (int i = 0; i < s->count; i++)
        draw_series(s, &a, i, f);
    fprintf(f, "</svg>\n");
    return fclose(f) == 0;
}
