# SPDX-License-Identifier: Apache-2.0
"""What the comparison prints and writes: a table that grows row by row, notes below it, and files."""
import csv
import json
import math
import os
import statistics


def figure(rates):
    return f"{statistics.median(rates):.0f} ({min(rates):.0f}-{max(rates):.0f})"


def cell(row, name):
    if name not in row.rates:
        return "-"
    return f"{figure(row.rates[name])} {'WRONG' if row.wrong(name) else f'{row.ratio(name):.2f}'}"


def table_line(cells, widths):
    print("| " + " | ".join(text.ljust(width) for text, width in zip(cells, widths)) + " |", flush=True)


class Table:
    """Markdown, a line as soon as its row is done."""

    def __init__(self, names):
        self.names = names
        self.widths = [32, 18] + [22] * len(names) + [16]
        table_line(["tokens x dim", "ours"] + names + ["best rival"], self.widths)
        table_line(["---"] * len(self.widths), self.widths)

    def add(self, row):
        best = row.best()
        ours = figure(row.rates["ours"]) if "ours" in row.rates else "-"
        last = f"{best} {row.ratio(best):.2f}" if best else "-"
        table_line([str(row), ours] + [cell(row, name) for name in self.names] + [last], self.widths)


def print_ways(rows):
    """How each peer computed, in its own words."""
    ways = {}
    for row in rows:
        for name in row.rates:
            ways.setdefault(name, {}).setdefault(row.details[name], f"{row.dtype} {row.pattern} {row.direction}")
    print("\nHow, and where first:")
    for name, details in ways.items():
        print(f"  {name}: " + "; ".join(f"{detail} ({where})" for detail, where in details.items()))


def print_notes(rows, rivals):
    """Largest differences, then every sentence that explains a dash, once."""
    print("\nLargest difference from ours at sampled rows, relative to the largest number of ours:")
    for rival in rivals:
        worst = {}
        for row in rows:
            if rival.name in row.errors:
                key = f"{row.dtype} {row.direction}"
                worst[key] = max(worst.get(key, 0.0), row.errors[rival.name])
        if worst:
            print(f"  {rival.name}: " + ", ".join(f"{key} {error:.1e}" for key, error in worst.items()))
    for row in rows:
        for name in row.rates:
            if name != "ours" and row.wrong(name):
                print(f"  WRONG: {name} at {row}: difference {row.errors[name]:.1e}")
    reasons = {}
    for row in rows:
        for name, note in row.notes.items():
            reasons.setdefault((name, note), []).append(str(row))
    if reasons:
        print("\nWithout figures:")
    for (name, note), where in reasons.items():
        print(f"  {name}: {note} ({where[0]}{f' and {len(where) - 1} more' if len(where) > 1 else ''})")


def print_summary(rows):
    judged = [(row.ratio(row.best()), row) for row in rows if row.best()]
    if not judged:
        print("\nSummary: no rival was measured")
        return
    mean = math.exp(statistics.fmean(math.log(ratio) for ratio, _ in judged))
    ahead = sum(ratio > 1.0 for ratio, _ in judged)
    least, worst = min(judged, key=lambda pair: pair[0])
    wins = [row.best() for _, row in judged]
    best = max(sorted(set(wins)), key=wins.count)
    print(f"\nSummary: ours / best rival {mean:.2f} (geometric mean of {len(judged)} rows), "
          f"ahead in {ahead}, least {least:.2f} against {worst.best()} at {worst}; "
          f"most often best among the rivals: {best}")


class Files:
    """samples.jsonl grows with every row; summary.csv is rewritten after each, so a run that is cut short
    leaves what it had."""

    def __init__(self, folder, machine):
        self.folder = folder
        if folder:
            os.makedirs(folder, exist_ok=True)
            self.samples = open(os.path.join(folder, "samples.jsonl"), "w")
            self.record({"machine": machine})

    def record(self, sample):
        if self.folder:
            print(json.dumps(sample), file=self.samples, flush=True)

    def summarise(self, rows):
        if not self.folder:
            return
        path = os.path.join(self.folder, "summary.csv")
        with open(path + ".part", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["tokens", "heads", "dim", "dtype", "pattern", "pass", "peer", "detail", "runs",
                             "gflops_median", "gflops_least", "gflops_most", "ours_over_peer", "difference"])
            for row in rows:
                for name, rates in row.rates.items():
                    writer.writerow([*row.fields().values(), name, row.details[name], len(rates),
                                     statistics.median(rates), min(rates), max(rates), row.ratio(name),
                                     row.errors.get(name, "")])
        os.replace(path + ".part", path)


def print_head(machine, rivals):
    print(f"{machine['processor']}, {machine['threads']} of {machine['cores']} cores, "
          f"load {machine['load']:.2f} before")
    for name, version in machine["versions"].items():
        print(f"  {'ringattn' if name == 'ours' else name} {version}")
    for rival in rivals:
        if rival.trouble:
            print(f"  {rival.name} is absent ({rival.trouble}). {rival.advice}")
    print("\nGFLOP/s, median (min-max); after each rival: ours / rival, above 1 if ours is faster\n")
