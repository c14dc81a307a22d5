//! ClickBench: one wide table of a web analytics service's hits, and 43 queries.
//!
//! Source: the benchmark of that name (<https://github.com/ClickHouse/ClickBench>): the names and types of its
//! columns, and its queries. Its data, 100 million rows of a real service, are not used: the rows here are
//! random, of any number, with similar distributions where queries depend on them. Figures measured with them
//! are not ClickBench results.
//!
//! A value depends only on the scale, the seed, its column and its row, its row's user, or its row's
//! page, so threads, batches and files do not change the data.
//!
//! # Table
//!
//! `hits` has round(1,000,000·S) rows. Nothing is NULL. Rows are in time order, except within ten
//! minutes.
//!
//! # Columns
//!
//! | published type | written as |
//! |---|---|
//! | SMALLINT, INTEGER, BIGINT | Int16, Int32, Int64 |
//! | TIMESTAMP | Timestamp(Microsecond), whole seconds |
//! | DATE | Date32 |
//! | TEXT, VARCHAR, CHAR of a short list | Dictionary(Int8, Utf8) |
//! | other TEXT: Title, URL, Referer, OriginalURL, SearchPhrase, Params, SocialSourcePage, ParamOrderID | Utf8 |
//!
//! The columns that queries use, with N as the number of rows:
//!
//! | column | values |
//! |---|---|
//! | WatchID | unique |
//! | UserID | of 100 + N/6 users, the most frequent with a share of their number to the power -1/2; 435090932899640449 is one of the first |
//! | RegionID | one a user, of 5,009; 229 has 6% |
//! | ClientIP | two a user |
//! | CounterID | one of 1,000 sites; 62 has a tenth of the rows |
//! | EventTime, EventDate | July 2013 |
//! | URL | of 100 + N/500 pages a site, the front page first; in a thousandth of the rows empty; in 3% with `google`, a third of that in the domain |
//! | Title | one a page, Russian words and the site; one page in 16 has none; `Google` where the URL has `google` |
//! | TraficSourceID | -1 (within the site) 44%, 0, 1 to 6 and 8; 2, a search, 14% |
//! | SearchPhrase | for 13% of the rows: Russian and English words, of 100 + N/20 phrases; otherwise empty |
//! | SearchEngineID | 2, 3 or 4 of a search, otherwise 0 |
//! | AdvEngineID | 0 but for a row in 128 |
//! | Referer | empty, a page of the site, of another, or a search |
//! | URLHash, RefererHash | equal where the texts are; 2868770270353813622 is the front page of the site of CounterID 62, 3594120000172545465 its second page |
//! | ResolutionWidth | of 21 screens, 0 to 2,560 |
//! | MobilePhoneModel, MobilePhone | empty and 0 but for one user in 16 |
//! | IsRefresh, IsLink | 1 in a row of 8 |
//! | DontCountHits, IsDownload | 1 in a row of 10, and of 64 |

mod columns;
mod hit;
mod queries;
mod table;
mod texts;

pub use queries::QUERIES;
pub(crate) use table::Hits;

/// Version of the generated data; changes with any change of a value, a type or an encoding.
pub const DATA_VERSION: u32 = 1;
