//! Sessions must load the library before they plan: `CREATE EXTENSION` puts it into the database's
//! `session_preload_libraries`, and `DROP EXTENSION` takes it out. What else stands there stays, in its
//! order.

use std::ffi::c_void;

use pgrx::pg_sys::{self, Oid};
use pgrx::spi::{self, Spi};

const NAME: &str = "headrace";
const SETTING: &str = "session_preload_libraries";

static mut PREVIOUS: pg_sys::object_access_hook_type = None;

/// From now on a drop is noticed.
pub fn install() {
    // SAFETY: the backend's thread, once a process: `_PG_init` calls it.
    unsafe {
        PREVIOUS = pg_sys::object_access_hook;
        pg_sys::object_access_hook = Some(object_access);
    }
}

#[pgrx::pg_guard]
unsafe extern "C-unwind" fn object_access(
    access: pg_sys::ObjectAccessType::Type,
    class: Oid,
    object: Oid,
    sub: i32,
    argument: *mut c_void,
) {
    if let Some(previous) = PREVIOUS {
        previous(access, class, object, sub, argument);
    }
    let is_drop = access == pg_sys::ObjectAccessType::OAT_DROP;
    if is_drop
        && class == pg_sys::ExtensionRelationId
        && crate::nodes::owned(pg_sys::get_extension_name(object)) == NAME
    {
        preload(false);
    }
}

/// Whether new sessions of this database load the library.
#[pgrx::pg_extern(volatile)]
fn preload(wanted: bool) {
    if let Err(error) = alter(wanted) {
        pgrx::error!("{SETTING} of this database cannot be set: {error}");
    }
}

fn alter(wanted: bool) -> Result<(), spi::Error> {
    let database = Spi::get_one::<String>("select pg_catalog.current_database()::text")?;
    let present = Spi::get_one::<String>(
        "select pg_catalog.substr(setting, 27)
         from pg_catalog.pg_db_role_setting s, pg_catalog.unnest(s.setconfig) setting
         where s.setrole operator(pg_catalog.=) 0
            and pg_catalog.starts_with(setting, 'session_preload_libraries=')
            and s.setdatabase operator(pg_catalog.=) (select oid from pg_catalog.pg_database
                where datname operator(pg_catalog.=) pg_catalog.current_database())
         union all select null limit 1",
    )?;
    let mut libraries = elements(&present.unwrap_or_default());
    libraries.retain(|library| library != NAME && library != &format!("$libdir/{NAME}"));
    if wanted {
        libraries.push(NAME.into());
    }
    let database = spi::quote_identifier(database.unwrap_or_default());
    let quoted: Vec<String> = libraries.iter().map(spi::quote_literal).collect();
    Spi::run(&match quoted.is_empty() {
        true => format!("alter database {database} reset {SETTING}"),
        false => format!("alter database {database} set {SETTING} = {}", quoted.join(", ")),
    })
}

/// The elements of a list as the server writes it: those that need it stand in double quotes.
fn elements(list: &str) -> Vec<String> {
    let (mut elements, mut element, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in list.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => elements.push(std::mem::take(&mut element)),
            c => element.push(c),
        }
    }
    elements.push(element);
    elements.iter().map(|e| e.trim().to_string()).filter(|e| !e.is_empty()).collect()
}
