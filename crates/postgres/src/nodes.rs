//! Lists and nodes of the server.

use std::ffi::{CStr, c_char, c_void};

use pgrx::pg_sys::{self, Node, NodeTag};

/// The elements of a list of pointers, of which none is added or removed meanwhile.
pub unsafe fn items<'a, T>(
    list: *mut pg_sys::List,
) -> impl DoubleEndedIterator<Item = *mut T> + 'a {
    let cells = match list.is_null() {
        true => &[],
        // `length` cells stand at `elements`.
        false => std::slice::from_raw_parts((*list).elements, (*list).length as usize),
    };
    cells.iter().map(|cell| cell.ptr_value.cast())
}

/// The elements of a list of OIDs.
pub unsafe fn oids(list: *mut pg_sys::List) -> impl Iterator<Item = pg_sys::Oid> {
    let length = if list.is_null() { 0 } else { (*list).length as usize };
    // `length` cells stand at `elements`.
    (0..length).map(move |place| (*(*list).elements.add(place)).oid_value)
}

/// A list of pointers.
pub unsafe fn list<T>(items: impl IntoIterator<Item = *mut T>) -> *mut pg_sys::List {
    let append = |list, item: *mut T| pg_sys::lappend(list, item.cast::<c_void>());
    items.into_iter().fold(std::ptr::null_mut(), append)
}

/// The members of a set.
pub unsafe fn numbers(set: *mut pg_sys::Bitmapset) -> impl Iterator<Item = u32> {
    let mut last = -1;
    std::iter::from_fn(move || {
        last = pg_sys::bms_next_member(set, last);
        // Negative after the last.
        u32::try_from(last).ok()
    })
}

/// What a node is.
pub unsafe fn tag(node: *mut Node) -> NodeTag {
    (*node).type_
}

/// A node as what it is.
pub unsafe fn cast<T>(node: *mut Node, of: NodeTag) -> Option<*mut T> {
    (!node.is_null() && tag(node) == of).then_some(node.cast())
}

/// Whether two expressions are the same, places in the text aside.
pub unsafe fn equal<A, B>(a: *mut A, b: *mut B) -> bool {
    pg_sys::equal(a.cast(), b.cast())
}

pub unsafe fn copy<T>(node: *mut T) -> *mut T {
    pg_sys::copyObjectImpl(node.cast()).cast()
}

/// A string node.
pub unsafe fn string(text: &str) -> *mut Node {
    let copied = pg_sys::pstrdup(c_string(text).as_ptr());
    pg_sys::makeString(copied).cast()
}

/// The text of a string node; `None` if it is none.
pub unsafe fn text_of<'a>(node: *mut Node) -> Option<&'a str> {
    let string = cast::<pg_sys::String>(node, NodeTag::T_String)?;
    CStr::from_ptr((*string).sval).to_str().ok()
}

/// A text for the server. JSON and our own words have no zero bytes; names of the server cannot.
pub fn c_string(text: &str) -> std::ffi::CString {
    std::ffi::CString::new(text.replace('\0', "?")).unwrap_or_default()
}

/// The server's text as ours.
pub unsafe fn owned(text: *const c_char) -> String {
    match text.is_null() {
        true => String::new(),
        false => CStr::from_ptr(text).to_string_lossy().into_owned(),
    }
}

/// Where a walk goes on from a node.
pub enum Walk {
    /// With what is in it.
    Into,
    /// With what comes after it.
    Past,
    /// Nowhere.
    Stop,
}

/// Shows an expression, or a query, and what is in it, from the outside in.
pub unsafe fn walk(node: *mut Node, look: &mut dyn FnMut(*mut Node) -> Walk) {
    struct Looking<'a>(&'a mut dyn FnMut(*mut Node) -> Walk);

    unsafe extern "C-unwind" fn visit(node: *mut Node, looking: *mut c_void) -> bool {
        if node.is_null() {
            return false;
        }
        // `walk` made it, and waits.
        match (*looking.cast::<Looking<'_>>()).0(node) {
            Walk::Into if tag(node) == NodeTag::T_Query => {
                pg_sys::query_tree_walker(node.cast(), Some(visit), looking, 0)
            }
            Walk::Into => pg_sys::expression_tree_walker(node, Some(visit), looking),
            Walk::Past => false,
            Walk::Stop => true,
        }
    }

    let mut looking = Looking(look);
    visit(node, (&raw mut looking).cast());
}

/// Whether something in an expression is as asked for.
pub unsafe fn any(node: *mut Node, is: &mut dyn FnMut(*mut Node) -> bool) -> bool {
    let mut found = false;
    walk(node, &mut |node| {
        found = is(node);
        if found { Walk::Stop } else { Walk::Into }
    });
    found
}

/// The reserved errors' opposite: a reason why a pipeline does not take something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhyNot(pub String);

/// Why not.
pub fn why_not<T>(reason: impl Into<String>) -> Result<T, WhyNot> {
    Err(WhyNot(reason.into()))
}

/// The range table entry of a base relation.
pub unsafe fn entry_of(
    root: *mut pg_sys::PlannerInfo,
    relation: *mut pg_sys::RelOptInfo,
) -> *mut pg_sys::RangeTblEntry {
    *(*root).simple_rte_array.add((*relation).relid as usize)
}
