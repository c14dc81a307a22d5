//! The build tables that the cases probe.

use super::*;

/// A batch of a build: keys, then payload.
pub fn build(name: &str, keys: &[Field], payload: &[Field], columns: Vec<ArrayRef>) -> BuildTable {
    build_with(name, keys, payload, columns, BuildOptions::default())
}

pub fn build_with(
    name: &str,
    keys: &[Field],
    payload: &[Field],
    columns: Vec<ArrayRef>,
    options: BuildOptions,
) -> BuildTable {
    let named = keys.iter().chain(payload).zip(&columns);
    let fields: Vec<_> = named
        .map(|(f, c)| arrow_schema::Field::new(&f.name, c.data_type().clone(), f.nullable))
        .collect();
    let batch = RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(fields)), columns).unwrap();
    BuildTable::from_batches(name, keys, payload, &[batch], options).unwrap()
}

pub fn builds() -> Vec<Arc<BuildTable>> {
    let key = |name: &str, t: DataType, nullable| Field::new(name, t, nullable);
    let keys: Vec<i32> = (1..=500).filter(|k| k % 3 != 0).collect();
    let payload = [
        key("year", DataType::Int32, false),
        key("brand", DataType::Utf8, true),
        key("price", DataType::Float64, false),
        key("big", DataType::Int64, true),
        key("flag", DataType::Bool, false),
    ];
    let payload_columns = |keys: &[i32]| -> Vec<ArrayRef> {
        vec![
            Arc::new(keys.iter().map(|k| 1992 + k % 7).collect::<Int32Array>()),
            Arc::new(
                keys.iter()
                    .map(|k| (k % 11 != 0).then(|| format!("brand {}", k % 5)))
                    .collect::<StringArray>(),
            ),
            Arc::new(keys.iter().map(|k| f64::from(*k) / 4.0).collect::<Float64Array>()),
            Arc::new(
                keys.iter()
                    .map(|k| (k % 13 != 0).then(|| i64::from(*k) << 40))
                    .collect::<Int64Array>(),
            ),
            Arc::new(keys.iter().map(|k| Some(k % 2 == 0)).collect::<BooleanArray>()),
        ]
    };
    let mut direct: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(keys.clone()))];
    direct.extend(payload_columns(&keys));
    // Keys far apart make a hash build.
    let far: Vec<i64> = (0..400).map(|k| i64::from(k) * 3_000_000_007 - 600_000_000_000).collect();
    let far_values: Vec<i32> = (0..400).collect();
    let mut hashed: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(far))];
    hashed.extend(payload_columns(&far_values));
    let repeated: Vec<i32> = (0..600).map(|i| i % (100 + i / 5)).collect();
    let mut several: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(repeated))];
    several.extend(payload_columns(&(0..600).collect::<Vec<_>>()));
    let mut empty: Vec<ArrayRef> = vec![Arc::new(Int32Array::from(Vec::<i32>::new()))];
    empty.extend(payload_columns(&[]));
    let with_null: Vec<Option<i32>> = vec![Some(3), None, Some(7), Some(250)];
    let duplicates: Vec<i32> = (0..300).map(|i| i % 100).collect();
    let pairs: Vec<(i32, i64)> =
        (1..=500).map(|k| (k, i64::from(k % 17) * 1_000_000_000_000)).collect();
    let one = |name: &str, t| [key(name, t, false)];
    vec![
        Arc::new(build("direct", &one("key", DataType::Int32), &payload, direct)),
        Arc::new(build("hashed", &one("key", DataType::Int64), &payload, hashed)),
        Arc::new(build(
            "with_null",
            &[key("key", DataType::Int32, true)],
            &[],
            vec![Arc::new(Int32Array::from(with_null))],
        )),
        Arc::new(build(
            "duplicates",
            &one("key", DataType::Int32),
            &[],
            vec![Arc::new(Int32Array::from(duplicates))],
        )),
        Arc::new(build(
            "wide",
            &[key("k1", DataType::Int32, false), key("k2", DataType::Int64, false)],
            &one("pair", DataType::Int32),
            vec![
                Arc::new(pairs.iter().map(|p| p.0).collect::<Int32Array>()),
                Arc::new(pairs.iter().map(|p| p.1).collect::<Int64Array>()),
                Arc::new(pairs.iter().map(|p| p.0 % 10).collect::<Int32Array>()),
            ],
        )),
        Arc::new(build("several", &one("key", DataType::Int32), &payload, several)),
        Arc::new(build("empty", &one("key", DataType::Int32), &payload, empty)),
    ]
}
