//! Connections of a door.

use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server::until;

/// How long no connection is taken after one could not be, such as for want of open files: those who are served give theirs
/// back.
const PAUSE: Duration = Duration::from_millis(100);

/// Gives each connection to `serve` until the server ends, and then waits for what they do.
pub async fn each<S, C>(listener: TcpListener, mut ending: watch::Receiver<bool>, serve: S)
where
    S: Fn(TcpStream) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            taken = listener.accept() => match taken {
                Ok((socket, _)) => {
                    let _ = socket.set_nodelay(true);
                    connections.spawn(serve(socket));
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            },
            () = until(&mut ending) => break,
            Some(_) = connections.join_next() => {}
        }
    }
    // Who comes now is refused, and not left to wait.
    drop(listener);
    while connections.join_next().await.is_some() {}
}
