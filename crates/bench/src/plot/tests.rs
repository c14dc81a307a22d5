#![allow(clippy::unwrap_used)]
use super::xml::check;
use super::*;

fn plot(series: usize) -> SweepPlot {
    let points = (0..series).flat_map(|n| {
        (0..6).map(move |power| SweepPoint {
            series: format!("uring & <pinned> \"{n}\" threads"),
            x: f64::from(1 << (20 + power)),
            y: 10.0 + n as f64 * 3.0 + f64::from(power),
        })
    });
    SweepPlot {
        title: "page cache -> GPU, \u{1b}[1m8 slots".to_string(),
        x_label: "chunk size".to_string(),
        y_label: "GB/s (10^9 bytes)".to_string(),
        points: points.collect(),
        ceilings: vec![
            CeilingLine { name: "H2D".to_string(), y: 55.5 },
            CeilingLine { name: "disk".to_string(), y: 2.48 },
        ],
        ..SweepPlot::default()
    }
}

#[test]
fn the_picture_is_well_formed_and_names_every_line() {
    let svg = sweep_svg(&plot(5)).unwrap();
    let document = check::parse(&svg).unwrap();
    assert_eq!(document.elements[0].name, "svg");
    for n in 0..5 {
        assert!(document.says(&format!("uring & <pinned> \"{n}\" threads")));
    }
    for text in ["H2D: 55.50", "disk: 2.48", "chunk size", "GB/s (10^9 bytes)", "1 MiB", "32 MiB"] {
        assert!(document.says(text), "{text} is missing");
    }
    // A white ground of the whole size is drawn first.
    let ground = &document.elements[1];
    assert_eq!((ground.name.as_str(), ground.number("x")), ("rect", 0.0));
    assert!(ground.attributes.iter().any(|(name, fill)| name == "fill" && fill == "#FFFFFF"));
    assert_eq!(svg, sweep_svg(&plot(5)).unwrap());
}

#[test]
fn higher_values_lie_higher() {
    let svg = sweep_svg(&plot(1)).unwrap();
    let document = check::parse(&svg).unwrap();
    let lines = document.elements.iter().filter(|element| element.name == "polyline");
    let points = |element: &check::Element| -> Vec<(f64, f64)> {
        let text = &element.attributes.iter().find(|(name, _)| name == "points").unwrap().1;
        text.split_whitespace()
            .map(|pair| pair.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect()
    };
    let data = lines.map(points).find(|points| points.len() == 6).unwrap();
    assert!(data.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > pair[1].1), "{data:?}");
    // Powers of two lie evenly.
    let steps: Vec<f64> = data.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(steps.iter().all(|step| (step - steps[0]).abs() <= 1.0), "{steps:?}");
}

#[test]
fn as_many_series_as_can_be_told_apart_are_drawn() {
    let document = check::parse(&sweep_svg(&plot(SERIES_MAX)).unwrap()).unwrap();
    let height = document.elements[0].number("height");
    let lowest = document
        .elements
        .iter()
        .filter(|element| element.name == "text")
        .map(|element| element.number("y"))
        .fold(0.0, f64::max);
    assert!(lowest < height, "the legend ends at {lowest} of {height}");
    let error = sweep_svg(&plot(SERIES_MAX + 1)).unwrap_err();
    assert_eq!(error, PlotError::TooMany { series: SERIES_MAX + 1 });
}

#[test]
fn what_cannot_be_drawn_is_an_error() {
    assert_eq!(sweep_svg(&SweepPlot { points: Vec::new(), ..plot(1) }), Err(PlotError::Empty));
    for (x, y) in [(0.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1.0, -0.1)] {
        let points = vec![SweepPoint { series: "a".to_string(), x, y }];
        let error = sweep_svg(&SweepPlot { points, ..plot(1) }).unwrap_err();
        assert!(matches!(error, PlotError::Point { .. }), "{error}");
    }
    let ceilings = vec![CeilingLine { name: "none".to_string(), y: f64::NAN }];
    assert!(sweep_svg(&SweepPlot { ceilings, ..plot(1) }).is_err());
}

#[test]
fn one_point_and_zeros_are_drawn_too() {
    let points = vec![SweepPoint { series: "a".to_string(), x: 3.0, y: 0.0 }];
    let ceilings = Vec::new();
    let plot = SweepPlot { points, ceilings, ..plot(1) };
    assert!(check::parse(&sweep_svg(&plot).unwrap()).unwrap().says("a"));
}

#[test]
fn limits_are_lines_where_they_lie_among_the_points() {
    let mark = |name: &str, x: f64| MarkLine { name: name.to_string(), x };
    let mib = f64::from(1 << 20);
    let marks = vec![mark("device memory", 64.0 * mib), mark("host memory", 4096.0 * mib)];
    let without = check::parse(&sweep_svg(&plot(2)).unwrap()).unwrap();
    let document = check::parse(&sweep_svg(&SweepPlot { marks, ..plot(2) }).unwrap()).unwrap();
    assert!(document.says("device memory: 64 MiB"));
    assert!(document.says("host memory: 4 GiB, not in the picture"));
    // The axis grows for the one limit, not for the other.
    assert!(document.says("64 MiB") && !without.says("64 MiB") && !document.says("128 MiB"));
    assert!(document.count("polyline") > without.count("polyline") + 10, "dashes of the limit");
    let none = SweepPlot { marks: vec![mark("none", f64::NAN)], ..plot(2) };
    assert!(sweep_svg(&none).is_err());
}

#[test]
fn percent_begin_at_zero_and_lie_evenly() {
    let point = |x, y| SweepPoint { series: "a".to_string(), x, y };
    let points = vec![point(0.0, 1.0), point(50.0, 1.0), point(100.0, 2.0)];
    let plot = SweepPlot { points, x_axis: XAxis::Percent, ..SweepPlot::default() };
    let svg = sweep_svg(&plot).unwrap();
    let document = check::parse(&svg).unwrap();
    assert!(document.says("100%"));
    let circles = document.elements.iter().filter(|element| element.name == "circle");
    let xs: Vec<f64> = circles.map(|circle| circle.number("cx")).take(3).collect();
    assert!(xs[0] < xs[1] && ((xs[1] - xs[0]) - (xs[2] - xs[1])).abs() <= 1.0, "{xs:?}");
    assert!(sweep_svg(&SweepPlot { x_axis: XAxis::Bytes, ..plot }).is_err());
}

fn bars() -> BarPlot {
    let bar = |name: &str, values: &[f64], mark| Bar {
        name: name.to_string(),
        values: values.to_vec(),
        mark,
    };
    BarPlot {
        title: "stages".to_string(),
        x_label: "seconds".to_string(),
        mark_name: "wall time".to_string(),
        parts: vec!["read".to_string(), "cpu & co".to_string(), "write".to_string()],
        bars: vec![bar("psync", &[1.0, 2.0, 0.5], Some(2.5)), bar("async", &[0.5, 0.0, 1.0], None)],
    }
}

#[test]
fn bars_are_stacked_and_as_long_as_their_values() {
    let svg = bars_svg(&bars()).unwrap();
    let document = check::parse(&svg).unwrap();
    for text in ["stages", "seconds", "psync", "async", "read", "cpu & co", "write", "wall time"] {
        assert!(document.says(text), "{text} is missing");
    }
    let of_height = |height: f64| {
        let rects = document.elements.iter().filter(|element| element.name == "rect");
        rects.filter(|rect| rect.number("height") == height).collect::<Vec<_>>()
    };
    let rects = of_height(f64::from(bars::BAR_PX));
    assert_eq!(rects.len(), 5, "a part of 0 is not drawn");
    let (x, width) = (|i: usize| rects[i].number("x"), |i: usize| rects[i].number("width"));
    assert!((x(0) + width(0) - x(1)).abs() <= 1.0 && (x(1) + width(1) - x(2)).abs() <= 1.0);
    assert!((width(1) / width(0) - 2.0).abs() < 0.02, "{} and {}", width(1), width(0));
    assert_eq!((x(3), rects[0].number("y") < rects[3].number("y")), (x(0), true));
    assert_eq!(svg, bars_svg(&bars()).unwrap());
}

#[test]
fn bars_that_cannot_be_drawn_are_an_error() {
    assert_eq!(bars_svg(&BarPlot { bars: Vec::new(), ..bars() }), Err(PlotError::Empty));
    for values in [vec![f64::NAN; 3], vec![-1.0; 3], vec![1.0; 2]] {
        let bars = BarPlot { bars: vec![Bar { values, ..bars().bars.remove(0) }], ..bars() };
        assert!(matches!(bars_svg(&bars), Err(PlotError::Point { .. })), "{bars:?}");
    }
    let many = vec!["part".to_string(); 8];
    let bars = BarPlot { parts: many, bars: vec![], ..bars() };
    assert_eq!(bars_svg(&bars), Err(PlotError::TooMany { series: 8 }));
}
