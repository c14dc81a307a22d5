//! `headrace gpu`: a thin door over `headrace_doctor::gpus`.

use clap::Args;
use headrace_doctor::gpus;

use crate::error::Result;
use crate::output;

/// `gpu`.
#[derive(Debug, Args)]
pub struct GpuArgs {
    /// Everything as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Lists the devices. Without a device it gives the reason, which is an answer and not a failure.
pub fn run(args: &GpuArgs) -> Result<()> {
    let report = gpus::look();
    if args.json { output::print_json(&report) } else { output::print(&gpus::render(&report)) }
}
