"""The page for mosquitto's users knows every key that they may have, and says nothing of keys that we do not."""

import re
from pathlib import Path

import msgspec

from gateway.config.load import load
from gateway.config.schema import GatewayConfig, TlsConfig
from tests.gateway.support import ROOT
from uplink.config.route import RouteConfig

PAGE = ROOT / "docs/how-to/mosquitto.md"
KEYS = """
acl_file allow_anonymous allow_duplicate_messages allow_zero_length_clientid auth_plugin auth_plugin_deny_special_chars
auto_id_prefix autosave_interval autosave_on_changes check_retain_source clientid_prefixes connection_messages
include_dir log_dest log_facility log_timestamp log_timestamp_format log_type max_inflight_bytes max_inflight_messages
max_keepalive max_packet_size max_queued_bytes max_queued_messages memory_limit message_size_limit password_file
per_listener_settings persistence persistence_file persistence_location persistent_client_expiration pid_file plugin
psk_file queue_qos0_messages retain_available set_tcp_nodelay sys_interval upgrade_outgoing_qos user bind_address
bind_interface http_dir listener max_connections max_qos max_topic_alias mount_point port protocol socket_domain
use_username_as_clientid websockets_log_level websockets_headers_size cafile capath certfile ciphers ciphers_tls1.3
crlfile dhparamfile keyfile require_certificate tls_engine tls_engine_kpass_sha1 tls_keyform tls_version
use_identity_as_username use_subject_as_username psk_hint address addresses bridge_attempt_unsubscribe
bridge_bind_address bridge_max_packet_size bridge_outgoing_retain bridge_protocol_version cleansession
local_cleansession connection keepalive_interval idle_timeout local_clientid local_password local_username notifications
notifications_local_only notification_topic remote_clientid remote_password remote_username restart_timeout round_robin
start_type threshold topic try_private bridge_alpn bridge_cafile bridge_capath bridge_certfile bridge_identity
bridge_insecure bridge_keyfile bridge_psk bridge_require_ocsp bridge_tls_version
"""
"""The keys in mosquitto.conf(5) of 2.0."""
NEWER_KEYS = """
bridge_ciphers bridge_ciphers_tls1.3 bridge_receive_maximum bridge_session_expiry_interval bridge_tls_use_os_certs
disable_client_cert_date_checks enable_control_api enable_proxy_protocol global_max_clients global_max_connections
global_plugin listener_allow_anonymous listener_auto_id_prefix max_topic_alias_broker packet_buffer_size plugin_load
plugin_use proxy_protocol_v2_require_tls retain_expiry_interval
accept_protocol_versions bridge_max_topic_alias bridge_reload_type bridge_tcp_keepalive bridge_tcp_user_timeout
websockets_origin
"""
"""The keys that mosquitto.conf(5) of 2.1 has beside them, and that its parser takes."""


def rows() -> list[tuple[str, str]]:
    return re.findall(r"^\| (`.*?) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)


def test_every_key_of_mosquitto_is_on_the_page_once() -> None:
    listed = [key for left, _ in rows() for key in re.findall(r"`([a-z0-9_.*]+)`", left)]
    assert set(f"{KEYS} {NEWER_KEYS}".split()) <= set(listed)
    assert len(listed) == len(set(listed))


def test_our_keys_on_the_page_exist() -> None:
    words = {word for _, right in rows() for word in re.findall(r"`((?:store|queue|limits|tls|log)\.[a-z_]+)", right)}
    ours = set(_keys(GatewayConfig)) | {f"tls.{key}" for key in _keys(TlsConfig)}
    assert words and words <= ours
    assert {"keep_alive_s", "backoff_shortest_ms", "backoff_longest_ms", "filters"} <= set(_keys(RouteConfig))


def test_the_gateway_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text(PAGE.read_text().split("```toml\n", 1)[1].split("```", 1)[0])
    config, _ = load(path)
    assert len(config.listener) == 1


def _keys(table: type[msgspec.Struct], prefix: str = "") -> list[str]:
    found: list[str] = []
    for field in msgspec.structs.fields(table):
        found.append(prefix + field.name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found += _keys(field.type, f"{prefix}{field.name}.")
    return found
