"""The result of a comparison as Markdown, which reads well on a terminal too, and its place in docs/performance.md."""

from sides import SIDES

BEGIN, END = "<!-- bench table -->", "<!-- end of bench table -->"

TITLES = {side.key: side.title for side in SIDES.values()}


def table(header, rows):
    """Markdown, its columns aligned; all but the first to the right."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row):
        return "| " + " | ".join(text.rjust(width) if i else text.ljust(width)
                                 for i, (text, width) in enumerate(zip(row, widths))) + " |"
    rule = "|" + "|".join("-" * (width + 1) + (":" if i else "-") for i, width in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *map(line, cells[1:])])


def ms(value):
    if value is None:
        return "-"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(spread):
    return f"{spread['median']:.2f} ({spread['min']:.2f} to {spread['max']:.2f})"


def steps_table(settings):
    rows = []
    for setting in settings:
        sides = setting["summary"]["sides"]
        for pair in setting["summary"]["pairs"]:
            peer, ours = pair["peer"], pair["ours"]
            rows.append([setting["title"], TITLES[ours], TITLES[peer], ms(sides[ours]["ms"]["step"]),
                         ms(sides[peer]["ms"]["step"]), ratio(pair["step"])])
    return table(["setting", "ours", "peer", "our step, ms", "peer's step, ms", "peer / ours (range)"], rows)


def ratios_by_phase(settings):
    rows = [[setting["title"], TITLES[pair["ours"]], TITLES[pair["peer"]],
             *(ratio(pair[phase]) for phase in ("forward", "backward", "after_backward"))]
            for setting in settings for pair in setting["summary"]["pairs"]]
    return table(["setting", "ours", "peer", "forward", "backward", "after backward"], rows)


def phases_table(settings):
    columns = ("step", "forward", "backward", "after_backward", "clip", "optimizer", "comm")
    rows = [[setting["title"], TITLES[key], *(ms(side["ms"][column]) for column in columns)]
            for setting in settings for key, side in setting["summary"]["sides"].items()]
    return table(["setting", "side", *(column.replace("_", " ") for column in columns)], rows)


def memory_table(settings):
    rows = [[setting["title"], TITLES[key], f"{side['pss_mb']:.0f}", f"{side['start_s']:.2f}"]
            for setting in settings for key, side in setting["summary"]["sides"].items()]
    return table(["setting", "side", "memory, MB", "start to first step, s"], rows)


def micro_table(micro):
    factor = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}

    def rate(row):
        if "bytes_per_second" in row:
            return f"{row['bytes_per_second'] / 1e9:.2f} GB/s"
        return f"{row['items_per_second'] / 1e6:,.0f} M elements/s" if "items_per_second" in row else "-"
    rows = [[row["name"].removesuffix("/manual_time").removesuffix("/real_time"),
             f"{row['real_time'] * factor[row['time_unit']]:,.2f}", rate(row)]
            for row in micro["benchmarks"] if row.get("run_type") == "iteration"]
    return table(["micro benchmark", "time, us", "rate"], rows)


def heading(result):
    machine, options, versions = result["machine"], result["options"], result["versions"]
    load = machine["load_before"]
    difference = max(setting["largest_loss_difference"] for setting in result["settings"])
    return (
        f"{result['time']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB; load before the "
        f"run {load:.2f}. Mantissa {versions['mantissa']}"
        + (f" at {versions['commit']}" if versions["commit"] else "")
        + f", torch {versions['torch']}, Python {versions['python']}. {options['ranks']} ranks, 1 thread each, float32; "
        f"{options['rounds']} rounds of {options['steps']} steps, of which the first {options['warmup']} do not count. "
        f"Losses of all sides agree at every step to {difference:.1e} relative (allowed: 1e-05).")


def report(result):
    """All tables of a result, with the sentences that they need to be read rightly."""
    settings = result["settings"]
    parts = [heading(result), steps_table(settings),
             "Ratios by phase, peer / ours. A phase includes the communication that happens in it. Ours takes the norm "
             "while it reduces, in backward, and applies the clip factor in the optimizer's pass; \"after backward\" "
             "is all the rest of the step on both sides.", ratios_by_phase(settings),
             "Medians in ms. `clip` and `optimizer` are parts of \"after backward\" and not comparable between "
             "Mantissa and PyTorch, since the work is divided otherwise; `comm` is the time in collectives within the "
             "other phases, which PyTorch's sides do not tell.", phases_table(settings),
             "Memory is the peak of the PSS summed over all processes of a side; the start goes from the first process "
             "to the beginning of the first step.", memory_table(settings)]
    if result.get("micro"):
        parts += ["Micro benchmarks (one thread; the exchange: two ranks of this machine).",
                  micro_table(result["micro"])]
    return "\n\n".join(parts) + "\n"


def into_docs(text, tables):
    """`text` with `tables` between the markers. Throws ValueError where there is not one pair of them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"need one {BEGIN} and after it one {END}")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{tables.rstrip()}\n{END}{after}"
