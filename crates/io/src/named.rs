//! Enumerations whose values have names.

/// Gives an enumeration the list of its values, their names, and the way from a value to its name; with a word for
/// what it is, also the way back, which refuses other names with that word.
#[macro_export]
macro_rules! named {
    ($type:ident, $what:literal, $($value:ident => $name:literal),+ $(,)?) => {
        $crate::named!($type, $($value => $name),+);

        impl ::std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> ::std::result::Result<Self, String> {
                Self::ALL.into_iter().find(|value| value.name() == text).ok_or_else(|| {
                    let names = Self::ALL.map(Self::name).join(", ");
                    format!("{text:?} is no {}; there are {names}", $what)
                })
            }
        }
    };
    ($type:ident, $($value:ident => $name:literal),+ $(,)?) => {
        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$value),+];

            /// Its user-visible name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
