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
