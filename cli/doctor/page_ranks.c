/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page_ranks.c - the picture of ranks: a row each, its bars on a common axis of time (of operation numbers where nothing carries a time), and in words
 * how it stands. Positions are in percent, so that it fits any width; words stand beside the drawing, so that they never cover each other.
 */
#include <math.h>
#include <string.h>

#include "page.h"

enum { ROW_PX = 20, CELLS = 4096, TICKS = 5 };

/* The last part of the axis is for what had not ended when the record did. */
static const double OPEN_SHARE = 0.12;

static double percent(const struct lanes *ls, double t)
{
    double at = (t - ls->from) / (ls->to - ls->from);
    return 100 * (at < 0 ? 0 : at > 1 ? 1 : at) * (1 - OPEN_SHARE);
}

static bool on_axis(const struct lanes *ls, double t)
{
    double span = ls->to - ls->from;
    return ls->timed && t > 0 && t >= ls->from - span && t <= ls->to + span;
}

static void put_seconds(FILE *f, double s)
{
    static const struct { double unit; const char *word; } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}};
    size_t u = 0;
    if (s <= 0) {
        put(f, "0");
        return;
    }
    while (u + 1 < sizeof units / sizeof *units && s < units[u].unit * 0.9995)
        u++;
    double v = s / units[u].unit;
    put(f, fabs(v - round(v)) < 0.005 ? "%.0f %s" : "%.1f %s", v, units[u].word);
}

/* ---- the axis ------------------------------------------------------------------------------------------------------------------------ */

/* Of the steps that people count in, the smallest that leaves room for the words. */
static double step_of(double span)
{
    static const double nice[] = {1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400};
    double power = pow(10, floor(log10(span / TICKS)));
    if (span < TICKS)
        return power * TICKS >= span ? power : power * 2 * TICKS >= span ? power * 2 : power * 5 * TICKS >= span ? power * 5 : power * 10;
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (nice[i] * TICKS >= span)
            return nice[i];
    return ceil(span / TICKS / 86400) * 86400;
}

static void draw_axis(FILE *f, const struct lanes *ls)
{
    double span = ls->to - ls->from, step = step_of(span);
    put(f, "<svg width=\"100%%\" height=\"%d\" aria-hidden=\"true\">", ROW_PX);
    for (double t = 0; t <= span * 1.0001; t += step) {
        put(f, "<text class=\"dim\" x=\"%.2f%%\" y=\"14\" text-anchor=\"%s\">", percent(ls, ls->from + t), t == 0 ? "start" : "middle");
        put_seconds(f, t);
        put(f, "</text>");
    }
    put(f, "</svg>");
}

static void draw_grid(FILE *f, const struct lanes *ls)
{
    double span = ls->to - ls->from, step = step_of(span);
    for (double t = 0; t <= span * 1.0001; t += step)
        put(f, "<line class=\"grid\" x1=\"%.2f%%\" x2=\"%.2f%%\" y1=\"0\" y2=\"%d\"/>", percent(ls, ls->from + t), percent(ls, ls->from + t), ROW_PX);
}

/* ---- a row --------------------------------------------------------------------------------------------------------------------------- */

static void draw_block(FILE *f, enum lane_state state, double from, double to, const char *words)
{
    double width = to - from < 0.4 ? 0.4 : to - from;
    put(f, "<rect class=\"b-%s\" x=\"%.2f%%\" width=\"%.2f%%\" y=\"4\" height=\"12\" rx=\"2\"><title>%s</title></rect>", lane_looks[state].class, from, from + width > 100 ? 100 - from : width, words);
}

/* Nothing is open here while others wait: an empty frame to the end says so. */
static void draw_absence(FILE *f, const struct lanes *ls, const struct lane *l)
{
    double from = 0;
    for (int i = 0; ls->timed && i < l->bar_count; i++) {
        double end = l->bars[i].to > 0 ? l->bars[i].to : l->bars[i].from;
        if (on_axis(ls, end) && percent(ls, end) > from)
            from = percent(ls, end);
    }
    put(f, "<rect class=\"b-none\" x=\"%.2f%%\" width=\"%.2f%%\" y=\"4.5\" height=\"11\" rx=\"2\"><title>%s</title></rect>", from + 0.5, 99.4 - from, l->does);
}

static void draw_times(FILE *f, const struct lanes *ls, const struct lane *l)
{
    draw_grid(f, ls);
    for (int i = 0; i < l->bar_count; i++) {
        const struct lane_bar *b = &l->bars[i];
        if (on_axis(ls, b->from) || (b->to == 0 && b->from > 0))
            draw_block(f, b->state, percent(ls, b->from), b->to > 0 ? percent(ls, b->to) : 100, b->words);
    }
    if (l->state == LANE_ABSENT)
        draw_absence(f, ls, l);
    for (int i = 0; i < l->mark_count; i++)
        if (on_axis(ls, l->marks[i].at)) {
            double x = percent(ls, l->marks[i].at);
            put(f, "<svg x=\"%.2f%%\" y=\"10\" overflow=\"visible\"><path class=\"b-error halo\" d=\"M0-6 5.5 4-5.5 4z\"><title>%s: %s</title></path></svg>", x < 1 ? 1 : x, l->marks[i].words, l->marks[i].fact->text);
        }
}

/* Neither times nor different numbers: there is nothing to draw, only to say. */
static bool has_axis(const struct lanes *ls)
{
    return ls->timed || ls->high > ls->low;
}

static void draw_number(FILE *f, const struct lanes *ls, const struct lane *l)
{
    if (l->number != NOBODY)
        draw_block(f, l->state, 0, 10 + 90 * (double)(l->number - ls->low) / (double)(ls->high - ls->low), l->does);
    else if (l->state == LANE_ABSENT)
        draw_absence(f, ls, l);
}

static void put_who(FILE *f, struct model *m, const struct lane *l)
{
    if (l->ranks.n)
        put(f, "<b>%s</b>", ranks_say(m, &l->ranks));
    if (l->ranks.n > 1)
        put(f, " <small>(%d)</small>", l->ranks.n);
    if (l->others && !l->ranks.n)
        put(f, "<b>%s</b>", l->name);
    if (l->others > !l->ranks.n)
        put(f, " <small>and %d more</small>", l->others - !l->ranks.n);
    if (*l->place && l->ranks.n == 1)
        put(f, "<br><small>%s</small>", l->place);
}

static void put_marks(FILE *f, const struct lane *l)
{
    for (int i = 0; i < l->mark_count && i < 2; i++) {
        put(f, "<br><small>%s, <span class=\"place\">%s", l->marks[i].words, l->marks[i].fact->file);
        if (l->marks[i].fact->line)
            put(f, ":%ld", l->marks[i].fact->line);
        put(f, "</span></small>");
    }
    int more = l->mark_count - 2 + l->marks_more;
    if (more > 0)
        put(f, "<br><small>and %d more marks</small>", more);
}

static void put_row(FILE *f, struct model *m, const struct lanes *ls, const struct lane *l)
{
    const struct lane_look *look = &lane_looks[l->state];
    put(f, "<tr class=\"r-%s\"><td class=\"who\">", look->class);
    put_who(f, m, l);
    put(f, "</td>");
    if (has_axis(ls)) {
        put(f, "<td class=\"when\"><svg width=\"100%%\" height=\"%d\" role=\"img\" aria-label=\"%s\">", ROW_PX, look->words);
        if (ls->timed)
            draw_times(f, ls, l);
        else
            draw_number(f, ls, l);
        put(f, "</svg></td>");
    }
    put(f, "<td><span class=\"chip t-%s\">%s</span> ", look->class, look->words);
    put_cut(f, l->does, 200);
    if (on_axis(ls, l->since)) {
        put(f, l->ranks.n > 1 ? " <small>(the first since " : " <small>(since ");
        put_seconds(f, l->since - ls->from);
        put(f, ")</small>");
    }
    if (*l->site)
        put(f, "<br><small>called by %s</small>", l->site);
    put_marks(f, l);
    put(f, "</td></tr>\n");
}

/* ---- all ------------------------------------------------------------------------------------------------------------------------------- */

/* Where there are many: every rank as one cell, so that a pattern (a host, every eighth) is seen. */
static void put_map(FILE *f, const struct lanes *ls)
{
    bool seen[LANE_STATES] = {false};
    if (ls->heard <= LANES_APART)
        return;
    put(f, "<div class=\"map\" role=\"img\" aria-label=\"every rank by its state\">");
    for (int i = 0; i < ls->heard; i++) {
        seen[ls->cells[i].state] = true;
        if (i < CELLS)
            put(f, "<i class=\"m-%s\" title=\"%s: %s\"></i>", lane_looks[ls->cells[i].state].class, ls->cells[i].name, lane_looks[ls->cells[i].state].words);
    }
    put(f, "</div>\n<p class=\"key map-key\">");
    for (int s = 0; s < LANE_STATES; s++)
        if (seen[s])
            put(f, "<span class=\"t-%s\">■ %s</span>", lane_looks[s].class, lane_looks[s].words);
    put(f, "</p>\n");
    if (ls->heard > CELLS)
        put(f, "<p class=\"soft\">The first %d of %d are drawn.</p>\n", CELLS, ls->heard);
}

void page_ranks(FILE *f, struct judge *j)
{
    const struct lanes *ls = lanes_of(j);
    if (!ls)
        return;
    put(f, "<section id=\"ranks\"><h2>Who did what, and when</h2>\n");
    put_map(f, ls);
    put(f, "<div class=\"card\"><table class=\"lanes\"><thead><tr><th class=\"who\">%s</th>", ls->heard > LANES_APART ? "Ranks that stand alike" : "Rank");
    put(f, has_axis(ls) ? "<th class=\"when\">" : "");
    if (ls->timed)
        draw_axis(f, ls);
    else if (has_axis(ls))
        put(f, "operation %lld to %lld", (long long)ls->low, (long long)ls->high);
    put(f, has_axis(ls) ? "</th>" : "");
    put(f, "<th>How it stands</th></tr></thead>\n<tbody>\n");
    for (int i = 0; i < ls->count && i < LANES_SHOWN; i++)
        put_row(f, j->m, ls, &ls->v[i]);
    put(f, "</tbody></table></div>\n");
    if (ls->count > LANES_SHOWN)
        put(f, "<p class=\"soft\">And %d more groups of ranks, each unlike the others.</p>\n", ls->count - LANES_SHOWN);
    put(f, ls->timed ? "<p class=\"soft\">Time counts from the first thing that is drawn. A bar that reaches the right edge had not ended when the record did; &#9650; is an error or a time-out; an empty frame is a rank that was not there.</p>\n"
                     : "<p class=\"soft\">What was read carries no time for this%s.</p>\n", has_axis(ls) ? "; the length of a bar is the operation that the rank came to" : "");
    put(f, "</section>\n");
}
