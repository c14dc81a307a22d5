//! Arrow Flight SQL: batches of Arrow over HTTP/2, for ADBC, JDBC and whatever takes columns.
//!
//! ```text
//! CreatePreparedStatement(sql) ─► handle: the statement itself       DoPut(handle, values) ─► handle: with the values
//! GetFlightInfo(sql | handle)  ─► columns, ticket ─► DoGet(ticket) ─► batches, as the client takes them
//! ```
//!
//! Nothing is kept between calls: a handle is the statement, and a token is its user, signed. Clients that never close what they
//! have opened cost nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::metadata::{SqlInfoData, SqlInfoDataBuilder};
use arrow_flight::sql::server::{FlightSqlService, PeekableFlightDataStream};
use arrow_flight::sql::{
    ActionClosePreparedStatementRequest, ActionCreatePreparedStatementRequest,
    ActionCreatePreparedStatementResult, CommandGetCatalogs, CommandGetDbSchemas,
    CommandGetSqlInfo, CommandGetTableTypes, CommandGetTables, CommandPreparedStatementQuery,
    CommandPreparedStatementUpdate, CommandStatementQuery, CommandStatementUpdate,
    DoPutPreparedStatementResult, ProstMessageExt, SqlInfo, SqlSupportedTransaction,
    TicketStatementQuery,
};
use arrow_flight::{
    Action, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo, HandshakeRequest,
    HandshakeResponse, IpcMessage, SchemaAsIpc, Ticket,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use headrace_engine::failure::{Class, Failure};
use headrace_engine::sql::effect::Effect;
use headrace_engine::sql::filled::Parameter;
use headrace_engine::{PUBLIC, Session};
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::pg::{DATABASE, literals};
use crate::server::{LEVERS, Listed, Server, all_columns, all_tables, until};
use crate::statement::{Asker, Planned, plan};
use crate::tls::{self, Tls};
use crate::users::now_s;

/// How long a token is taken.
const TOKEN: Duration = Duration::from_secs(24 * 3600);

/// The longest message of a client: a statement and its values.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

type Rows = Pin<Box<dyn Stream<Item = Result<FlightData, Status>> + Send>>;

/// A statement, and the literals of its parameters.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Handle {
    sql: String,
    literals: Vec<String>,
}

impl Handle {
    fn of(bytes: &[u8]) -> Result<Self, Status> {
        serde_json::from_slice(bytes)
            .map_err(|_| Status::invalid_argument("a handle of another server"))
    }

    fn bytes(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    /// The statement with its values; those that are not there are NULL.
    fn filled(&self, session: &Session) -> Result<String, Status> {
        let filled = session.filled(&self.sql, |parameter| match parameter {
            Parameter::Nth(nth) => {
                Ok(self.literals.get(nth).cloned().unwrap_or_else(|| "NULL".to_string()))
            }
            Parameter::Named(name) => {
                datafusion::common::plan_err!("${name}: parameters have numbers here")
            }
        });
        filled.map_err(|error| status(&Failure::of(&error, &LEVERS)))
    }
}

/// A failure as gRPC has it.
fn status(failure: &Failure) -> Status {
    let code = match failure.class {
        Class::Forbidden => Code::PermissionDenied,
        Class::Busy | Class::OutOfMemory => Code::ResourceExhausted,
        Class::Unsupported | Class::Fallback => Code::Unimplemented,
        Class::UnknownTable | Class::MissingFile => Code::NotFound,
        Class::Cancelled => Code::Cancelled,
        Class::TimedOut => Code::DeadlineExceeded,
        Class::Io | Class::Corrupt | Class::FileChanged | Class::Device | Class::Internal => {
            Code::Internal
        }
        _ => Code::InvalidArgument,
    };
    let hint = failure.hint.as_ref().map(|hint| format!("\nhint: {hint}")).unwrap_or_default();
    let place = failure.place.as_ref().and_then(|place| place.shown.as_ref());
    let place = place.map(|shown| format!("\n{shown}")).unwrap_or_default();
    Status::new(code, format!("{}{place}{hint} (SQLSTATE {})", failure.cause, failure.sqlstate()))
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(error.to_string())
}

/// The door.
#[derive(Clone)]
pub struct FlightDoor {
    server: Arc<Server>,
    about: Arc<SqlInfoData>,
}

/// Serves until the server ends.
///
/// # Errors
/// It cannot listen.
pub async fn serve(
    server: Arc<Server>,
    listener: TcpListener,
    tls: Option<Tls>,
    mut ending: watch::Receiver<bool>,
) -> Result<(), String> {
    let shut = ending.clone();
    let ended = async move { until(&mut ending).await };
    let about = Arc::new(about(server.is_writable).map_err(|error| error.to_string())?);
    let service = FlightServiceServer::new(FlightDoor { server, about });
    let service = service.max_decoding_message_size(MESSAGE_BYTES_MAX);
    let router = tonic::transport::Server::builder().add_service(service);
    let served = match tls {
        Some(tls) => {
            let incoming = tls::handshaken(listener, tls, shut);
            router.serve_with_incoming_shutdown(incoming, ended).await
        }
        None => {
            let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
            router.serve_with_incoming_shutdown(incoming, ended).await
        }
    };
    served.map_err(|error| error.to_string())
}

fn about(is_writable: bool) -> Result<SqlInfoData, FlightError> {
    let mut about = SqlInfoDataBuilder::new();
    about.append(SqlInfo::FlightSqlServerName, "Headrace");
    about.append(SqlInfo::FlightSqlServerVersion, env!("CARGO_PKG_VERSION"));
    about.append(SqlInfo::FlightSqlServerArrowVersion, "1.5");
    about.append(SqlInfo::FlightSqlServerReadOnly, !is_writable);
    about.append(SqlInfo::FlightSqlServerSql, true);
    about.append(SqlInfo::FlightSqlServerSubstrait, false);
    about.append(SqlInfo::FlightSqlServerCancel, false);
    about.append(SqlInfo::FlightSqlServerTransaction, SqlSupportedTransaction::None as i32);
    about.append(SqlInfo::SqlIdentifierQuoteChar, "\"");
    about.build()
}

impl FlightDoor {
    /// Who asks: by a token, or by a name and its password.
    fn asker(&self, metadata: &MetadataMap) -> Result<Asker, Status> {
        let Some(users) = &self.server.users else {
            return Ok(Asker { name: "local".to_string(), may_write: true });
        };
        let given = metadata.get("authorization").and_then(|given| given.to_str().ok());
        let given =
            given.ok_or_else(|| Status::unauthenticated("a name and its password are needed"))?;
        let wrong = || Status::unauthenticated("the name, its password or the token is wrong");
        Ok(Asker { name: users.of_header(given).ok_or_else(wrong)?, may_write: true })
    }

    async fn plan(&self, asker: &Asker, handle: &Handle) -> Result<Planned, Status> {
        let session = self.server.session();
        let sql = handle.filled(&session)?;
        let planned = plan(&self.server, &session, asker, &sql, Vec::new()).await;
        planned.map_err(|failure| status(&failure))
    }

    /// The columns of a statement; none of one that changes something: to plan that would do it.
    async fn schema(&self, asker: &Asker, handle: &Handle) -> Result<SchemaRef, Status> {
        let session = self.server.session();
        let sql = handle.filled(&session)?;
        match session.effect(&sql) {
            Effect::Reads => {
                let planned = plan(&self.server, &session, asker, &sql, Vec::new()).await;
                Ok(without_codes(&planned.map_err(|failure| status(&failure))?.schema()))
            }
            _ => Ok(Arc::new(Schema::empty())),
        }
    }

    async fn rows(&self, asker: &Asker, handle: &Handle) -> Result<Response<Rows>, Status> {
        let planned = self.plan(asker, handle).await?;
        let running = planned.begin().await.map_err(|failure| status(&failure))?;
        let schema = running.schema();
        let batches = running.map_err(|failure| FlightError::Tonic(Box::new(status(&failure))));
        let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(batches);
        Ok(Response::new(Box::pin(encoded.map_err(Status::from))))
    }

    /// The rows that a statement says that it has written.
    async fn written(&self, asker: &Asker, handle: &Handle) -> Result<i64, Status> {
        let planned = self.plan(asker, handle).await?;
        let mut running = planned.begin().await.map_err(|failure| status(&failure))?;
        let mut count = -1;
        while let Some(batch) = running.next().await {
            let batch = batch.map_err(|failure| status(&failure))?;
            count = crate::statement::written(&batch).map_or(count, |written| written as i64);
        }
        Ok(count)
    }

    async fn info(
        &self,
        asker: &Asker,
        handle: &Handle,
        descriptor: FlightDescriptor,
    ) -> Result<Response<FlightInfo>, Status> {
        let schema = self.schema(asker, handle).await?;
        let ticket = TicketStatementQuery { statement_handle: handle.bytes() };
        told(&schema, ticket.as_any().encode_to_vec(), descriptor)
    }

    fn told_rows(batch: Result<RecordBatch, FlightError>, schema: SchemaRef) -> Response<Rows> {
        let once = futures::stream::once(async { batch });
        let encoded = FlightDataEncoderBuilder::new().with_schema(schema).build(once);
        Response::new(Box::pin(encoded.map_err(Status::from)))
    }
}

fn told(
    schema: &Schema,
    ticket: Vec<u8>,
    descriptor: FlightDescriptor,
) -> Result<Response<FlightInfo>, Status> {
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(ticket));
    let info = FlightInfo::new().try_with_schema(schema).map_err(internal)?;
    Ok(Response::new(info.with_endpoint(endpoint).with_descriptor(descriptor)))
}

/// The columns as they are sent: the values of dictionaries, and no codes.
fn without_codes(schema: &Schema) -> SchemaRef {
    let fields: Vec<Arc<Field>> = schema.fields().iter().map(plain_field).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn plain_field(field: &Arc<Field>) -> Arc<Field> {
    let data_type = match field.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::List(element) => DataType::List(plain_field(element)),
        DataType::LargeList(element) => DataType::LargeList(plain_field(element)),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain_field).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

fn schema_bytes(schema: &Schema) -> Result<Bytes, Status> {
    let options = datafusion::arrow::ipc::writer::IpcWriteOptions::default();
    let IpcMessage(bytes) = SchemaAsIpc::new(schema, &options)
        .try_into()
        .map_err(|error: arrow_schema::ArrowError| internal(error))?;
    Ok(bytes)
}

#[tonic::async_trait]
impl FlightSqlService for FlightDoor {
    type FlightService = Self;

    async fn do_handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<
        Response<Pin<Box<dyn Stream<Item = Result<HandshakeResponse, Status>> + Send>>>,
        Status,
    > {
        let asker = self.asker(request.metadata())?;
        let token = match &self.server.users {
            Some(users) => users.token(&asker.name, now_s() + TOKEN.as_secs()),
            None => asker.name,
        };
        let answer = HandshakeResponse { protocol_version: 0, payload: token.clone().into() };
        let answers = futures::stream::once(async { Ok(answer) });
        let mut response: Response<Pin<Box<dyn Stream<Item = _> + Send>>> =
            Response::new(Box::pin(answers));
        let bearer = format!("Bearer {token}").parse().map_err(internal)?;
        response.metadata_mut().insert("authorization", bearer);
        Ok(response)
    }

    async fn get_flight_info_statement(
        &self,
        query: CommandStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let asker = self.asker(request.metadata())?;
        let handle = Handle { sql: query.query, literals: Vec::new() };
        self.info(&asker, &handle, request.into_inner()).await
    }

    async fn do_get_statement(
        &self,
        ticket: TicketStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let asker = self.asker(request.metadata())?;
        self.rows(&asker, &Handle::of(&ticket.statement_handle)?).await
    }

    async fn do_action_create_prepared_statement(
        &self,
        query: ActionCreatePreparedStatementRequest,
        request: Request<Action>,
    ) -> Result<ActionCreatePreparedStatementResult, Status> {
        let asker = self.asker(request.metadata())?;
        let session = self.server.session();
        // Parameters have numbers from here on.
        let sql = session.filled(&query.query, |parameter| match parameter {
            Parameter::Nth(nth) => Ok(format!("${}", nth + 1)),
            Parameter::Named(name) => Ok(format!("${name}")),
        });
        let sql = sql.map_err(|error| status(&Failure::of(&error, &LEVERS)))?;
        let handle = Handle { sql, literals: Vec::new() };
        let schema = self.schema(&asker, &handle).await?;
        let sql = handle.sql.clone();
        let inferred = async move {
            match session.effect(&sql) {
                // The planner reads no such statement, which has no parameters.
                Effect::Functions => Ok(Vec::new()),
                _ => session.parameter_types(&sql, Vec::new()).await,
            }
        };
        let inferred = self.server.work.of(inferred).await.map_err(|failure| status(&failure))?;
        let types = inferred.map_err(|error| status(&Failure::of(&error, &LEVERS)))?;
        let parameters = types.into_iter().enumerate().map(|(nth, data_type)| {
            let data_type = data_type.unwrap_or(DataType::Utf8);
            Field::new(format!("${}", nth + 1), data_type, true)
        });
        let parameters = Schema::new(parameters.collect::<Vec<_>>());
        Ok(ActionCreatePreparedStatementResult {
            prepared_statement_handle: handle.bytes(),
            dataset_schema: schema_bytes(&schema)?,
            parameter_schema: schema_bytes(&parameters)?,
        })
    }

    async fn do_action_close_prepared_statement(
        &self,
        _: ActionClosePreparedStatementRequest,
        _: Request<Action>,
    ) -> Result<(), Status> {
        Ok(())
    }

    async fn do_put_prepared_statement_query(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<DoPutPreparedStatementResult, Status> {
        self.asker(request.metadata())?;
        let mut handle = Handle::of(&query.prepared_statement_handle)?;
        handle.literals = values(request.into_inner()).await?;
        Ok(DoPutPreparedStatementResult { prepared_statement_handle: Some(handle.bytes()) })
    }

    async fn do_put_prepared_statement_update(
        &self,
        query: CommandPreparedStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let asker = self.asker(request.metadata())?;
        let mut handle = Handle::of(&query.prepared_statement_handle)?;
        let given = values(request.into_inner()).await?;
        if !given.is_empty() {
            handle.literals = given;
        }
        self.written(&asker, &handle).await
    }

    async fn do_put_statement_update(
        &self,
        ticket: CommandStatementUpdate,
        request: Request<PeekableFlightDataStream>,
    ) -> Result<i64, Status> {
        let asker = self.asker(request.metadata())?;
        self.written(&asker, &Handle { sql: ticket.query, literals: Vec::new() }).await
    }

    async fn get_flight_info_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let asker = self.asker(request.metadata())?;
        let handle = Handle::of(&query.prepared_statement_handle)?;
        self.info(&asker, &handle, request.into_inner()).await
    }

    async fn do_get_prepared_statement(
        &self,
        query: CommandPreparedStatementQuery,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let asker = self.asker(request.metadata())?;
        self.rows(&asker, &Handle::of(&query.prepared_statement_handle)?).await
    }

    async fn get_flight_info_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = query.as_any().encode_to_vec();
        told(&query.into_builder().schema(), ticket, request.into_inner())
    }

    async fn get_flight_info_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = query.as_any().encode_to_vec();
        told(&query.into_builder().schema(), ticket, request.into_inner())
    }

    async fn get_flight_info_tables(
        &self,
        query: CommandGetTables,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = query.as_any().encode_to_vec();
        told(&query.into_builder().schema(), ticket, request.into_inner())
    }

    async fn get_flight_info_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = query.as_any().encode_to_vec();
        told(&query.into_builder().schema(), ticket, request.into_inner())
    }

    async fn get_flight_info_sql_info(
        &self,
        query: CommandGetSqlInfo,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let ticket = query.as_any().encode_to_vec();
        told(&query.into_builder(&self.about).schema(), ticket, request.into_inner())
    }

    async fn do_get_catalogs(
        &self,
        query: CommandGetCatalogs,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.asker(request.metadata())?;
        let mut builder = query.into_builder();
        builder.append(DATABASE);
        let schema = builder.schema();
        Ok(Self::told_rows(builder.build(), schema))
    }

    async fn do_get_schemas(
        &self,
        query: CommandGetDbSchemas,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.asker(request.metadata())?;
        let mut builder = query.into_builder();
        let mut schemas = vec![PUBLIC.to_string()];
        schemas.extend(all_tables(&self.server.session()).into_iter().map(|table| table.schema));
        schemas.sort();
        schemas.dedup();
        schemas.into_iter().for_each(|schema| builder.append(DATABASE, schema));
        let schema = builder.schema();
        Ok(Self::told_rows(builder.build(), schema))
    }

    async fn do_get_tables(
        &self,
        query: CommandGetTables,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.asker(request.metadata())?;
        let session = self.server.session();
        let columns = match query.include_schema {
            true => {
                let columns = self.server.work.of(async move { all_columns(&session).await });
                columns.await.map_err(|failure| status(&failure))?
            }
            false => {
                let none = Arc::new(Schema::empty());
                all_tables(&session).into_iter().map(|table| (table, Arc::clone(&none))).collect()
            }
        };
        let mut builder = query.into_builder();
        for (table, columns) in columns {
            let (Listed { schema, name }, columns) = (table, without_codes(&columns));
            builder.append(DATABASE, schema, name, "TABLE", &columns).map_err(internal)?;
        }
        let schema = builder.schema();
        Ok(Self::told_rows(builder.build(), schema))
    }

    async fn do_get_table_types(
        &self,
        query: CommandGetTableTypes,
        request: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        self.asker(request.metadata())?;
        let mut builder = query.into_builder();
        builder.append("TABLE");
        let schema = builder.schema();
        Ok(Self::told_rows(builder.build(), schema))
    }

    async fn do_get_sql_info(
        &self,
        query: CommandGetSqlInfo,
        _: Request<Ticket>,
    ) -> Result<Response<<Self as FlightService>::DoGetStream>, Status> {
        let builder = query.into_builder(&self.about);
        let schema = builder.schema();
        Ok(Self::told_rows(builder.build(), schema))
    }

    async fn register_sql_info(&self, _: i32, _: &SqlInfo) {}
}

/// The literals of the values that a client binds: those of the only row.
async fn values(sent: PeekableFlightDataStream) -> Result<Vec<String>, Status> {
    let data = sent.into_peekable().map_err(|status| FlightError::Tonic(Box::new(status)));
    let mut batches = FlightRecordBatchStream::new_from_flight_data(data);
    let mut found: Option<Vec<String>> = None;
    while let Some(batch) = batches.next().await {
        let batch = batch.map_err(Status::from)?;
        for row in 0..batch.num_rows() {
            if found.is_some() {
                return Err(Status::unimplemented("values for one execution at a time are taken"));
            }
            found = Some(literals(&batch, row).map_err(|failure| status(&failure))?);
        }
    }
    Ok(found.unwrap_or_default())
}
