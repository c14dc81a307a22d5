//! The extended protocol: a statement is parsed, gets values, is described, and is executed in pieces.

use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::BufMut;
use headrace_engine::failure::Failure;
use headrace_engine::sql::effect::Effect;
use headrace_engine::sql::filled::Parameter;

use super::portal::{Portal, State};
use super::session::{Done, PgSession, Prepared, Transaction, one_text, refusal};
use super::wire::Bind;
use super::words::Command;
use super::{decode, inferred, types};
use crate::server::LEVERS;

/// Prepared statements of one session.
const STATEMENTS_MAX: usize = 10_000;

impl PgSession {
    pub(super) async fn parse(
        &mut self,
        name: String,
        text: String,
        mut types: Vec<u32>,
    ) -> Done<()> {
        if !name.is_empty() && self.statements.contains_key(&name) {
            return refusal("42P05", format!("there is a prepared statement {name} already"));
        }
        if self.statements.len() >= STATEMENTS_MAX {
            return refusal(
                "53400",
                format!("a session has {STATEMENTS_MAX} prepared statements at most"),
            );
        }
        let sql = match self
            .session
            .statements(&text)
            .map_err(|e| Failure::of(&e, &LEVERS))?
            .as_slice()
        {
            [] => String::new(),
            [(_, sql)] => sql.trim().to_string(),
            _ => return refusal("42601", "a prepared statement is one statement"),
        };
        let count = self.parameters(&sql)?;
        if types.len() < count {
            types.resize(count, 0);
        }
        if types.contains(&0) && count > 0 {
            self.infer(&sql, &mut types).await?;
        }
        self.statements.insert(name, Arc::new(Prepared { sql, types }));
        self.out.message(b'1', |_| {});
        Ok(())
    }

    /// How many parameters a statement has.
    fn parameters(&self, sql: &str) -> Done<usize> {
        let mut count = 0;
        let filled = self.session.filled(sql, |parameter| {
            if let Parameter::Nth(nth) = parameter {
                count = count.max(nth + 1);
            }
            Ok(String::new())
        });
        filled.map_err(|error| Failure::of(&error, &LEVERS))?;
        match count <= usize::from(u16::MAX) {
            true => Ok(count),
            false => refusal("54023", "a statement has 65535 parameters at most"),
        }
    }

    /// Gives parameters that the client has no types for those that the planner sees; texts where it sees none.
    async fn infer(&mut self, sql: &str, types: &mut [u32]) -> Done<()> {
        let query = match Command::of(sql) {
            Command::Engine(_) => sql.to_string(),
            Command::Declare { query_at, .. } => sql[query_at..].to_string(),
            Command::CopyOut { query, .. } => query,
            _ => return Ok(()),
        };
        for (nth, oid) in inferred::casts(&query) {
            if let Some(own) = types.get_mut(nth).filter(|own| **own == 0) {
                *own = oid;
            }
        }
        let (text, given) = self.rewritten(&query).await?;
        let (session, server) = (self.session.clone(), Arc::clone(&self.server));
        let work = server.work.of(async move { session.parameter_types(&text, given).await });
        let inferred = self.signals.unless_stopped(work).await??;
        let inferred = inferred
            .map_err(|error| Failure::of_statement(&self.session, &query, &error, &LEVERS))?;
        let inferred = inferred.into_iter().map(Some).chain(std::iter::repeat(None));
        for (own, inferred) in types.iter_mut().zip(inferred).filter(|(own, _)| **own == 0) {
            let inferred = inferred.flatten();
            *own = inferred.map_or(types::TEXT, |data_type| types::of_arrow(&data_type).0);
        }
        Ok(())
    }

    fn prepared(&self, name: &str) -> Done<Arc<Prepared>> {
        match self.statements.get(name) {
            Some(prepared) => Ok(Arc::clone(prepared)),
            None => refusal("26000", format!("there is no prepared statement {name}")),
        }
    }

    pub(super) fn bind(&mut self, bind: Bind) -> Done<()> {
        let prepared = self.prepared(&bind.statement)?;
        if bind.values.len() != prepared.types.len() {
            let (given, wanted) = (bind.values.len(), prepared.types.len());
            return refusal("08P01", format!("{given} values for {wanted} parameters"));
        }
        if bind
            .value_formats
            .iter()
            .chain(&bind.result_formats)
            .any(|format| !matches!(format, 0 | 1))
        {
            return refusal("08P01", "a format is 0, text, or 1, binary");
        }
        if !matches!(bind.value_formats.len(), 0 | 1)
            && bind.value_formats.len() != bind.values.len()
        {
            return refusal("08P01", "neither one format nor one for each value");
        }
        let is_binary = |nth: usize| match bind.value_formats.as_slice() {
            [] => false,
            [all] => *all == 1,
            each => each[nth] == 1,
        };
        let values = bind.values.iter().zip(&prepared.types).enumerate();
        let literals = values
            .map(|(nth, (value, oid))| decode::literal(*oid, is_binary(nth), value.as_ref()))
            .collect::<Result<Vec<_>, _>>()?;
        let sql = self.filled(&prepared.sql, &literals)?;
        if self.portals.get(&bind.portal).is_some_and(|portal| portal.cursor.is_some()) {
            return refusal("42P03", format!("there is a cursor {} already", bind.portal));
        }
        self.keep(bind.portal, Portal::new(sql, bind.result_formats))?;
        self.out.message(b'2', |_| {});
        Ok(())
    }

    fn filled(&self, sql: &str, literals: &[String]) -> Done<String> {
        if literals.is_empty() {
            return Ok(sql.to_string());
        }
        let filled = self.session.filled(sql, |parameter| match parameter {
            Parameter::Nth(nth) => Ok(literals.get(nth).cloned().unwrap_or_default()),
            Parameter::Named(name) => {
                datafusion::common::plan_err!("${name}: parameters have numbers here")
            }
        });
        Ok(filled.map_err(|error| Failure::of(&error, &LEVERS))?)
    }

    /// The columns of a statement's answer; `None`: it has no rows.
    async fn columns(&mut self, portal: &mut Portal) -> Done<Option<SchemaRef>> {
        if !portal.command.has_rows() || portal.sql.is_empty() {
            return Ok(None);
        }
        match &portal.command {
            Command::Show(name) => {
                if let Some(value) = self.settings.get(name) {
                    return Ok(Some(one_text(name, &value)?.schema()));
                }
            }
            Command::Fetch { name, .. } => {
                return Ok(self.portals.get(name).and_then(Portal::schema));
            }
            _ => {}
        }
        // To plan a statement that writes is to write.
        let reads = self.session.effect(&portal.sql) == Effect::Reads;
        if let (State::Bound, true) = (&portal.state, reads) {
            if self.transaction == Transaction::Failed {
                return refusal(
                    "25P02",
                    "the transaction has failed: statements are ignored until its end",
                );
            }
            portal.state = State::Planned(Box::new(self.plan(&portal.sql).await?));
        }
        Ok(portal.schema())
    }

    pub(super) async fn describe_statement(&mut self, name: &str) -> Done<()> {
        let prepared = self.prepared(name)?;
        let nulls: Vec<String> = prepared.types.iter().map(|oid| decode::null(*oid)).collect();
        let sql = self.filled(&prepared.sql, &nulls)?;
        let schema = self.columns(&mut Portal::new(sql, Vec::new())).await?;
        self.out.message(b't', |out| {
            out.put_u16(prepared.types.len() as u16);
            prepared.types.iter().for_each(|oid| out.put_u32(*oid));
        });
        self.put_columns(schema, &[]);
        Ok(())
    }

    pub(super) async fn describe_portal(&mut self, name: &str) -> Done<()> {
        let Some(mut portal) = self.portals.remove(name) else {
            return refusal("34000", format!("there is no portal {name}"));
        };
        let schema = self.columns(&mut portal).await;
        let formats = portal.result_formats.clone();
        self.portals.insert(name.to_string(), portal);
        self.put_columns(schema?, &formats);
        Ok(())
    }

    pub(super) fn put_columns(&mut self, schema: Option<SchemaRef>, formats: &[i16]) {
        match schema {
            Some(schema) => self.out.columns(&types::described(&schema, formats)),
            None => self.out.message(b'n', |_| {}),
        }
    }

    pub(super) async fn execute(&mut self, name: String, rows_max: usize) -> Done<()> {
        let Some(mut portal) = self.portals.remove(&name) else {
            return refusal("34000", format!("there is no portal {name}"));
        };
        if portal.sql.is_empty() {
            self.out.message(b'I', |_| {});
            self.portals.insert(name, portal);
            return Ok(());
        }
        let done = self.execute_portal(&mut portal, rows_max).await;
        // One that DISCARD has just forgotten, or of the name of a cursor that it has made, is not kept.
        if done.is_ok() && !self.portals.contains_key(&name) {
            self.portals.insert(name, portal);
        }
        done
    }

    async fn execute_portal(&mut self, portal: &mut Portal, rows_max: usize) -> Done<()> {
        self.open(portal).await?;
        let tag = portal.command.rows_tag();
        let formats = portal.result_formats.clone();
        if let Command::Fetch { name, rows, is_move: false } = &portal.command {
            let count = self.fetch(name, *rows, Some(&formats)).await?;
            self.out.complete(&format!("{tag} {count}"));
            return Ok(());
        }
        match &mut portal.state {
            State::Rows(source) => {
                self.unless_stopped(source.resume()).await??;
                let rows_max = (rows_max > 0).then_some(rows_max);
                let (rows, is_end) = self.send(source, &formats, rows_max).await?;
                match is_end {
                    true => self.out.complete(&format!("{tag} {rows}")),
                    false => {
                        source.pause();
                        self.out.message(b's', |_| {});
                    }
                }
            }
            State::Done(tag) => self.out.complete(tag),
            State::Bound | State::Planned(_) => {}
        }
        Ok(())
    }
}
