//! Table sizes by scale factor.

use crate::{SuiteError, error::check_scale};

const ORDERS_PER_SCALE: f64 = 1_500_000.0;
const CUSTOMERS_PER_SCALE: f64 = 30_000.0;
const SUPPLIERS_PER_SCALE: f64 = 2_000.0;
const PARTS_AT_SCALE_ONE: f64 = 200_000.0;

/// Rows of each table except lineorder, and the number of orders.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cardinalities {
    pub(crate) orders: u64,
    pub(crate) customers: u32,
    pub(crate) suppliers: u32,
    pub(crate) parts: u32,
}

impl Cardinalities {
    /// Linear in the scale (rounded), except for parts: 200,000 · (1 + ⌊log2 scale⌋) from scale 1
    /// up, and linear below.
    pub(crate) fn new(scale: f64) -> Result<Self, SuiteError> {
        check_scale(scale)?;
        let doublings = if scale >= 1.0 { 1.0 + scale.log2().floor() } else { scale };
        Ok(Self {
            orders: (ORDERS_PER_SCALE * scale).round() as u64,
            customers: (CUSTOMERS_PER_SCALE * scale).round() as u32,
            suppliers: (SUPPLIERS_PER_SCALE * scale).round() as u32,
            parts: (PARTS_AT_SCALE_ONE * doublings).round() as u32,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::SCALE_MIN;

    #[test]
    fn sizes_of_the_specification() {
        let sizes = |scale| {
            let c = Cardinalities::new(scale).unwrap();
            (c.orders, c.customers, c.suppliers, c.parts)
        };
        assert_eq!(sizes(1.0), (1_500_000, 30_000, 2_000, 200_000));
        assert_eq!(sizes(2.0), (3_000_000, 60_000, 4_000, 400_000));
        assert_eq!(sizes(10.0), (15_000_000, 300_000, 20_000, 800_000));
        assert_eq!(sizes(100.0), (150_000_000, 3_000_000, 200_000, 1_400_000));
        assert_eq!(sizes(0.01), (15_000, 300, 20, 2_000));
        assert_eq!(sizes(SCALE_MIN), (1_500, 30, 2, 200));
    }

    #[test]
    fn nonsense_is_refused() {
        for scale in [0.0, -1.0, 0.0009, 10_001.0, f64::NAN, f64::INFINITY] {
            assert!(Cardinalities::new(scale).is_err(), "{scale}");
        }
    }
}
