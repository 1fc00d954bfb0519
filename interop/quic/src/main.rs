//! Bulk data over QUIC: one end receives what the other sends, on several connections at a time.
//!
//! The client sends for a time, or so many bytes if they all arrive in that time, and prints what
//! the server said that it had by then as JSON. The time begins when there are connections; what
//! comes in the part of it that is to be left out is counted apart. Windows are as large as any
//! path here needs, so that congestion control alone decides. One thread drives each end, as one
//! of perftest does.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig, VarInt};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};

/// Bytes handed over in one call.
const CALL: usize = 1 << 16;
/// Bytes that may be under way on one connection.
const WINDOW: u32 = 256 << 20;
/// Bytes of a socket's buffers, as far as the system allows.
const SOCKET: usize = 8 << 20;
/// How often the server says how much it has.
const REPORTS: Duration = Duration::from_millis(5);
/// How long the server waits for its first client, and then for a next one.
const PATIENCE: Duration = Duration::from_secs(60);

/// The version of quinn, as the lock file has it.
fn quinn_version() -> &'static str {
    let lock = include_str!("../Cargo.lock");
    let entry = lock.split_once("name = \"quinn\"\nversion = \"").map_or("", |(_, rest)| rest);
    entry.split('"').next().unwrap_or("unknown")
}

/// Bulk data over QUIC
#[derive(Debug, Parser)]
#[command(version = quinn_version())]
struct Options {
    /// Receive here
    #[arg(long, conflicts_with = "connect")]
    listen: Option<SocketAddr>,
    /// Send there
    #[arg(long)]
    connect: Option<SocketAddr>,
    /// How long to send
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before those, which are no part of the rate
    #[arg(long, default_value_t = 0.0, conflicts_with = "bytes")]
    omit: f64,
    /// At most so many bytes, on all connections together
    #[arg(long)]
    bytes: Option<u64>,
    /// Connections at a time
    #[arg(long, default_value_t = 1)]
    streams: u64,
    /// The sender's congestion control
    #[arg(long, value_enum, default_value = "bbr")]
    congestion: Congestion,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Congestion {
    Bbr,
    Cubic,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let options = Options::parse();
    match (options.listen, options.connect) {
        (Some(address), None) => serve(address, options.streams).await,
        (None, Some(address)) => send(address, &options).await,
        _ => bail!("one of --listen and --connect says which end this is"),
    }
}

/// Receives from so many connections, and answers each with the bytes that it had.
async fn serve(address: SocketAddr, connections: u64) -> Result<()> {
    let endpoint = endpoint(address, Some(server_config()?))?;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let incoming = tokio::time::timeout(PATIENCE, endpoint.accept()).await?;
        let connecting = incoming.context("the endpoint is closed")?.accept()?;
        tasks.spawn(receive(connecting));
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    endpoint.wait_idle().await;
    Ok(())
}

/// Receives, and says now and then how much it was.
async fn receive(connecting: quinn::Connecting) -> Result<()> {
    let connection = connecting.await?;
    let (mut answer, mut stream) = connection.accept_bi().await?;
    let mut bytes: u64 = 0;
    let mut due = Instant::now();
    // An error means that the client has had enough.
    while let Ok(chunk) = stream.read_chunk(usize::MAX, true).await {
        bytes += chunk.as_ref().map_or(0, |chunk| chunk.bytes.len() as u64);
        if chunk.is_none() || Instant::now() >= due {
            answer.write_all(&bytes.to_be_bytes()).await?;
            due = Instant::now() + REPORTS;
        }
        if chunk.is_none() {
            connection.closed().await;
            break;
        }
    }
    Ok(())
}

async fn send(address: SocketAddr, options: &Options) -> Result<()> {
    let local = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let mut endpoint = endpoint(local.parse()?, None)?;
    endpoint.set_default_client_config(client_config(options.congestion)?);
    let share = options.bytes.map_or(u64::MAX, |bytes| bytes.div_ceil(options.streams));
    let mut connecting = tokio::task::JoinSet::new();
    for _ in 0..options.streams {
        connecting.spawn(endpoint.connect(address, "weft")?);
    }
    let mut connections = Vec::new();
    while let Some(connection) = connecting.join_next().await {
        connections.push(connection??);
    }
    let began = Instant::now();
    let steady = began + Duration::from_secs_f64(options.omit);
    let end = steady + Duration::from_secs_f64(options.seconds);
    let mut tasks = tokio::task::JoinSet::new();
    for connection in connections {
        tasks.spawn(async move { transfer(&connection, share, steady, end).await });
    }
    let mut moved = Moved::default();
    while let Some(outcome) = tasks.join_next().await {
        let of_one = outcome??;
        moved.bytes += of_one.bytes;
        moved.early += of_one.early;
    }
    let later = (moved.bytes - moved.early) as f64 * 8.0;
    let gbps = later / steady.elapsed().as_secs_f64() / 1e9;
    println!(
        "{}",
        serde_json::json!({ "gbps": gbps, "bytes": moved.bytes, "early": moved.early })
    );
    endpoint.wait_idle().await;
    Ok(())
}

/// What the server had.
#[derive(Clone, Copy, Debug, Default)]
struct Moved {
    bytes: u64,
    /// Those before the rate counts.
    early: u64,
}

/// Sends on one connection, and gives what the server had when it had all or the time was over.
async fn transfer(
    connection: &Connection,
    share: u64,
    steady: Instant,
    end: Instant,
) -> Result<Moved> {
    let (mut stream, mut answer) = connection.open_bi().await?;
    let feed = async {
        let buffer = vec![0x5a; CALL];
        let mut left = share;
        while left > 0 {
            let count = left.min(CALL as u64);
            stream.write_all(&buffer[..count as usize]).await?;
            left -= count;
        }
        stream.finish()?;
        anyhow::Ok(())
    };
    let mut moved = Moved::default();
    let listen = async {
        let mut count = [0; 8];
        while moved.bytes < share {
            answer.read_exact(&mut count).await?;
            moved.bytes = u64::from_be_bytes(count);
            if Instant::now() < steady {
                moved.early = moved.bytes;
            }
        }
        anyhow::Ok(())
    };
    let both = async { tokio::try_join!(feed, listen) };
    if let Ok(done) = tokio::time::timeout_at(end.into(), both).await {
        done?;
    }
    connection.close(VarInt::from_u32(0), b"");
    Ok(moved)
}

fn endpoint(address: SocketAddr, server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = std::net::UdpSocket::bind(address).context("binding the socket")?;
    let state = quinn::udp::UdpSocketState::new((&socket).into())?;
    let _as_far_as_allowed = state.set_send_buffer_size((&socket).into(), SOCKET);
    let _as_far_as_allowed = state.set_recv_buffer_size((&socket).into(), SOCKET);
    let runtime = quinn::default_runtime().context("no runtime")?;
    Ok(Endpoint::new(quinn::EndpointConfig::default(), server, socket, runtime)?)
}

fn transport(congestion: Option<Congestion>) -> Arc<TransportConfig> {
    let mut config = TransportConfig::default();
    config.stream_receive_window(VarInt::from_u32(WINDOW));
    config.receive_window(VarInt::from_u32(WINDOW));
    config.send_window(u64::from(WINDOW));
    let factory: Option<Arc<dyn ControllerFactory + Send + Sync>> = match congestion {
        Some(Congestion::Bbr) => Some(Arc::new(BbrConfig::default())),
        Some(Congestion::Cubic) => Some(Arc::new(CubicConfig::default())),
        None => None,
    };
    if let Some(factory) = factory {
        config.congestion_controller_factory(factory);
    }
    Arc::new(config)
}

fn server_config() -> Result<ServerConfig> {
    let own = rcgen::generate_simple_self_signed(vec![String::from("weft")])?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key.into())?;
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?));
    config.transport_config(transport(None));
    Ok(config)
}

fn client_config(congestion: Congestion) -> Result<ClientConfig> {
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?));
    config.transport_config(transport(Some(congestion)));
    Ok(config)
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Takes every certificate: both ends are the benchmark's own.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end: &CertificateDer<'_>,
        _chain: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}
