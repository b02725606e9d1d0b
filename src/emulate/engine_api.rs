//! The API of a container engine at a Unix socket, for a machine that has the engine but not its program.
//!
//! It is Docker's API ("Docker Engine API", docs.docker.com/reference/api/engine), which Podman answers as well. Requests
//! without a version are answered by every engine in its own version, and the fields that are read here are in all of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::net::UnixStream;
use tokio::runtime::Builder;

/// The longest time of an answer, also of an engine's program.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The longest answer, in bytes.
const LARGEST: usize = 16 << 20;

/// A container's addresses in a network of its engine. A text is empty if there is no such address.
#[derive(Debug, Deserialize)]
pub(super) struct EndpointSettings {
    #[serde(rename = "IPAddress", default)]
    pub(super) v4: String,
    #[serde(rename = "GlobalIPv6Address", default)]
    pub(super) v6: String,
    #[serde(rename = "MacAddress", default)]
    pub(super) mac: String,
}

/// A container as its engine describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Container {
    pub(super) id: String,
    /// Its name; Docker's names are paths.
    pub(super) name: String,
    pub(super) state: State,
    pub(super) network_settings: NetworkSettings,
}

/// The state of a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct State {
    /// Its first process, or 0 if it does not run.
    pub(super) pid: u32,
}

/// The networks of a container.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct NetworkSettings {
    /// Its addresses by the engine's names of the networks.
    pub(super) networks: Option<BTreeMap<String, EndpointSettings>>,
}

/// A container in a list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Listed {
    names: Vec<String>,
}

/// The reason why a request is refused.
#[derive(Debug, Deserialize)]
struct Refusal {
    message: String,
}

/// Returns the container with this name or ID, or the engine's words if it knows no such container.
pub(super) fn container(socket: &Path, name: &str) -> Result<Container, String> {
    let name = utf8_percent_encode(name, NON_ALPHANUMERIC);
    get(socket, &format!("/containers/{name}/json"))
}

/// Returns the names of all running containers with this label.
pub(super) fn labelled(socket: &Path, label: &str) -> Result<Vec<String>, String> {
    let filters = json!({ "label": [label] }).to_string();
    let filters = utf8_percent_encode(&filters, NON_ALPHANUMERIC);
    let listed: Vec<Listed> = get(socket, &format!("/containers/json?filters={filters}"))?;
    let names = listed.into_iter().filter_map(|container| {
        let mut names = container.names.into_iter();
        // A path with several parts is the name that another container has for it.
        names.find_map(|name| {
            let own = name.strip_prefix('/').unwrap_or(&name);
            (!own.contains('/')).then(|| own.to_owned())
        })
    });
    Ok(names.collect())
}

/// Returns what the engine answers to a request, or why it refuses or does not answer.
fn get<T: DeserializeOwned>(socket: &Path, target: &str) -> Result<T, String> {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot be asked: {error}"))?;
    let answer = runtime.block_on(async {
        let answer = tokio::time::timeout(PATIENCE, exchange(socket, target)).await;
        answer.map_err(|_| format!("has not answered within {} s", PATIENCE.as_secs()))
    });
    let (status, body) = answer?.map_err(|error| format!("cannot be asked: {error:#}"))?;
    if status == StatusCode::OK {
        let answer = serde_json::from_slice(&body);
        return answer.map_err(|error| format!("answered {target} with unknown JSON: {error}"));
    }
    let refusal: Option<Refusal> = serde_json::from_slice(&body).ok();
    Err(refusal.map_or_else(
        || format!("refused {target} with status {status}"),
        |refusal| refusal.message,
    ))
}

/// Makes a request on a connection for it alone, and returns the status and the body of the answer.
async fn exchange(socket: &Path, target: &str) -> anyhow::Result<(StatusCode, Bytes)> {
    let stream = UnixStream::connect(socket).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get(target)
        .header(header::HOST, "localhost")
        .body(String::new())?;
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    let body = axum::body::to_bytes(Body::new(answer.into_body()), LARGEST).await?;
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// Returns the request that `ask` makes, and what it returns for this answer.
    fn asked<T>(
        status: &str,
        body: &str,
        ask: impl FnOnce(&Path) -> Result<T, String>,
    ) -> (String, Result<T, String>) {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4_096];
            let length = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request[..length].to_vec()).unwrap()
        });
        let answered = ask(&socket);
        (server.join().unwrap(), answered)
    }

    #[test]
    fn a_container_has_its_first_process_and_its_addresses() {
        let body = r#"{"Id": "6f", "Name": "/web", "State": {"Status": "running", "Pid": 4711},
            "NetworkSettings": {"Ports": {}, "Networks": {"front": {"IPAddress": "172.18.0.2", "IPPrefixLen": 16,
            "GlobalIPv6Address": "", "MacAddress": "02:42:ac:12:00:02"}}}}"#;
        let (request, found) = asked("200 OK", body, |socket| container(socket, "we/b"));
        assert!(
            request.starts_with("GET /containers/we%2Fb/json HTTP/1.1\r\n"),
            "{request}"
        );
        let found = found.unwrap();
        assert_eq!((found.id.as_str(), found.name.as_str()), ("6f", "/web"));
        assert_eq!(found.state.pid, 4_711);
        let networks = found.network_settings.networks.unwrap();
        assert_eq!(networks["front"].v4, "172.18.0.2");
        assert_eq!(networks["front"].mac, "02:42:ac:12:00:02");
    }

    #[test]
    fn a_list_has_the_own_name_of_each_container() {
        let body =
            r#"[{"Id": "6f", "Names": ["/shop/db", "/data"]}, {"Id": "70", "Names": ["/web"]}]"#;
        let (request, names) = asked("200 OK", body, |socket| labelled(socket, "app=shop"));
        let target = "GET /containers/json?filters=%7B%22label%22%3A%5B%22app%3Dshop%22%5D%7D ";
        assert!(request.starts_with(target), "{request}");
        assert_eq!(names.unwrap(), ["data", "web"]);
    }

    #[test]
    fn a_refusal_has_the_words_of_the_engine_and_a_silent_socket_is_named() {
        let body = r#"{"message": "No such container: web"}"#;
        let ask = |socket: &Path| container(socket, "web");
        let (_, refused) = asked("404 Not Found", body, ask);
        assert_eq!(refused.unwrap_err(), "No such container: web");
        let (_, refused) = asked("500 Internal Server Error", "", ask);
        assert!(refused.unwrap_err().contains("status 500"));
        let (_, unknown) = asked("200 OK", "[]", ask);
        assert!(unknown.unwrap_err().contains("unknown JSON"));
        let absent = container(Path::new("/no/such/socket"), "web");
        assert!(absent.unwrap_err().starts_with("cannot be asked"));
    }
}
