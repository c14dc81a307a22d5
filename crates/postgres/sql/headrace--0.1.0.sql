\echo Use "CREATE EXTENSION headrace" to load this file. \quit

create function library_version() returns text
    language c immutable strict parallel safe
    as 'MODULE_PATHNAME', 'library_version_wrapper';
comment on function library_version() is 'version of the library that this session has loaded';

create function session_stat(
    out queries int8, out fallbacks int8, out direct_blocks int8, out server_blocks int8,
    out rerouted_blocks int8, out milliseconds float8, out service_queries int8, out service_failures int8,
    out service_failure text)
    returns setof record
    language c volatile strict parallel restricted
    as 'MODULE_PATHNAME', 'session_stat_wrapper';

create view stat as select * from headrace.session_stat();
comment on view stat is 'what the pipelines of this session did';
grant usage on schema headrace to public;
grant select on stat to public;

create function fdw_handler() returns fdw_handler
    language c volatile strict
    as 'MODULE_PATHNAME', 'fdw_handler_wrapper';
create function fdw_validator(text[], oid) returns void
    language c volatile strict
    as 'MODULE_PATHNAME', 'fdw_validator_wrapper';
create foreign data wrapper headrace handler fdw_handler validator fdw_validator;
comment on foreign data wrapper headrace is 'Arrow files of the server as tables';
create server headrace_files foreign data wrapper headrace;

create function devices(
    out ordinal int4, out name text, out uuid text, out pci_address text, out compute_capability text,
    out memory_bytes int8, out memory_used_bytes int8, out memory_gb_per_s float8, out multiprocessors int4,
    out clock_mhz int4, out utilization_percent float8, out temperature_c float8, out power_w float8,
    out power_limit_w float8, out pcie_generation int4, out pcie_lanes int4, out uncorrected_errors int8,
    out driver_version text, out cuda_version text)
    returns setof record
    language c volatile strict parallel restricted
    as 'MODULE_PATHNAME', 'devices_wrapper';

create view devices as select * from headrace.devices();
comment on view devices is 'the GPUs of this machine, as the process that owns them tells';
grant select on devices to public;

create function kept_tables(
    out name text, out columns text[], out others text[], out rows int8, out bytes int8, out readers int8, out stale text)
    returns setof record
    language c volatile strict parallel restricted
    as 'MODULE_PATHNAME', 'kept_tables_wrapper';

create view kept as select * from headrace.kept_tables();
comment on view kept is 'the tables whose columns are kept in the memory of a GPU';
grant select on kept to public;

create function cuda_handler() returns language_handler
    language c
    as 'MODULE_PATHNAME', 'cuda_handler_wrapper';
create function cuda_validator(oid) returns void
    language c strict
    as 'MODULE_PATHNAME', 'cuda_validator_wrapper';
create language cuda handler cuda_handler validator cuda_validator;
comment on language cuda is 'functions in CUDA C++, which the process that owns the GPUs compiles into its kernels';

create function preload(wanted bool) returns void
    language c volatile strict
    as 'MODULE_PATHNAME', 'preload_wrapper';
comment on function preload(bool) is 'whether new sessions of this database load the library';
revoke execute on function preload(bool) from public;

-- This loads the library into this session, too.
select preload(true);
