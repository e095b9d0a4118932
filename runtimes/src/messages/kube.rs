//! What kubectl and the API server say.

use crate::exec;
use crate::refusal::Refusal;

use super::oci;

/// Returns why kubectl did not do it, for the context of this name:
///
/// - 1.32: ``Error in configuration: context was not found for specified context: x``; 1.20: ``error: context "x" does not
///   exist``
/// - 1.20 and 1.32: ``The connection to the server 127.0.0.1:16443 was refused - did you specify the right host or port?``
/// - ``Unable to connect to the server: net/http: TLS handshake timeout``, ``… dial tcp: lookup x: no such host``
/// - ``error: You must be logged in to the server (Unauthorized)``
/// - ``Error from server (NotFound): namespaces "x" not found``
/// - ``Error from server (Forbidden): pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited:
///   pods=1``
/// - ``Error from server (Forbidden): pods is forbidden: User "weak" cannot create resource "pods" in API group "" in the
///   namespace "default"``
/// - whatever else admission refuses: see [`hint_for_admission`]
/// - ``pod default/x terminated (StartError)`` and the message of the low-level runtime
pub(crate) fn parse_refusal(text: &str, context: &str) -> Option<Refusal> {
    let text = without_log(text);
    let has = |needle: &str| text.contains(needle);
    let message = || exec::tail(text.as_bytes());
    if has("context was not found for specified context") || (has("context \"") && has(" does not exist")) {
        let message = format!("kubectl has no context '{context}'");
        Some(Refusal::UnknownConnection { message })
    } else if has("The connection to the server ")
        || has("Unable to connect to the server")
        || has("error dialing backend")
        || has("Error from server (ServiceUnavailable)")
        || has("net/http: request canceled")
        || has("connect: connection refused")
    {
        let (message, at) = (message(), parse_address(&text));
        Some(Refusal::DaemonUnreachable { message, engine: None, at, product: None, denied: false })
    } else if has("(Unauthorized)") || has("must be logged in") {
        Some(Refusal::NotPermitted { message: format!("the cluster of '{context}' does not know this user") })
    } else if has("exceeded quota") || has("status unknown for quota") {
        Some(Refusal::NoRoom { message: after_server(&text) })
    } else if let Some(message) = parse_lost_attach(&text) {
        // It then asks for the log of the pod, to which the smallest Role gives no access.
        Some(Refusal::Other { message })
    } else if has("is forbidden: User \"") && has(" cannot ") {
        Some(Refusal::NotPermitted { message: after_server(&text) })
    } else if has("(Forbidden)") || has("admission webhook \"") {
        let message = after_server(&text);
        let hint = hint_for_admission(&message).into();
        Some(Refusal::NotAdmitted { message, hint })
    } else if has("Error from server (NotFound): namespaces") {
        Some(Refusal::UnknownConnection { message: after_server(&text) })
    } else {
        oci::parse_refusal(&text)
    }
}

/// Returns what to do about a pod that admission refuses, by what follows ``Error from server (Forbidden): pods "x" is forbidden: ``:
///
/// - 1.20: ``failed quota: stated: must specify limits.cpu``; 1.32: ``failed quota: stated: must specify limits.cpu for: sandbox``
/// - ``maximum memory usage per Container is 64Mi, but limit is 512Mi``, ``minimum cpu usage per Container is 100m, but request
///   is 10m``, ``maximum cpu usage per Pod is 1.  No limit is specified``, ``cpu max limit to request ratio per Container is 2, but
///   provided ratio is 100.000000``
/// - ``violates PodSecurity "restricted:latest": runAsNonRoot != true (pod or container "sandbox" must set
///   securityContext.runAsNonRoot=true)``; 1.20: ``PodSecurityPolicy: unable to admit pod: []``
/// - ``no PriorityClass with name low was found``, ``pod rejected: RuntimeClass "gvisor" not found``
/// - ``Error from server: admission webhook "rules.example.com" denied the request: no``
fn hint_for_admission(message: &str) -> &'static str {
    let has = |needle: &str| message.contains(needle);
    if has("failed quota: ") && has("must specify") {
        "a pod states its memory and a request of CPU, and a CPU limit with --cpus; a LimitRange of the namespace can set the rest"
    } else if has(" usage per ") || has(" max limit to request ratio per ") {
        "choose --memory and --cpus that the LimitRange allows: `kubectl describe limitrange` shows it; each pod requests 10m of CPU"
    } else if has("violates PodSecurity") || has("PodSecurityPolicy") {
        "pods meet the restricted profile as codebridge makes them: look at the file of --pod, and at what changes pods in the cluster"
    } else if has("PriorityClass") || has("RuntimeClass") {
        "correct the name in the file of --pod: `kubectl get priorityclasses,runtimeclasses` lists them"
    } else {
        "ask who manages the cluster: a rule for pods in this namespace refuses it"
    }
}

/// Drops the lines of kubectl's own log: ``E1123 04:32:20.164849   21307 memcache.go:265] …``.
fn without_log(text: &str) -> String {
    let is_log = |line: &&str| {
        let mut bytes = line.bytes();
        matches!(bytes.next(), Some(b'E' | b'W' | b'I'))
            && bytes.by_ref().take(4).filter(u8::is_ascii_digit).count() == 4
            && bytes.next() == Some(b' ')
    };
    let lines: Vec<&str> = text.lines().filter(|line| !is_log(line)).collect();
    lines.join("\n").trim().to_owned()
}

fn parse_address(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("The connection to the server ")?;
    rest.split(' ').next().map(str::to_owned)
}

/// Returns what follows ``Error from server (Forbidden): ``.
fn after_server(text: &str) -> String {
    let rest = text.split_once("Error from server (").and_then(|(_, rest)| rest.split_once("): "));
    exec::tail(rest.map_or(text, |(_, rest)| rest).as_bytes())
}

/// Returns why `kubectl run` could not attach to its pod: ``warning: couldn't attach to pod/x, falling back to streaming logs:
/// unable to upgrade connection: …`` (1.20 and 1.32).
pub(crate) fn parse_lost_attach(text: &str) -> Option<String> {
    text.contains("falling back to streaming logs").then(|| exec::tail(text.as_bytes()))
}

/// Returns whether an object that was to be created is there already: ``Error from server (AlreadyExists): error when creating
/// "STDIN": networkpolicies.networking.k8s.io "x" already exists``.
pub(crate) fn parse_exists(stderr: &str) -> Option<()> {
    stderr.contains("Error from server (AlreadyExists): ").then_some(())
}

/// Returns whether the pod was not found: ``Error from server (NotFound): pods "x" not found``.
pub(crate) fn parse_missing_pod(stderr: &[u8]) -> Option<()> {
    String::from_utf8_lossy(stderr).contains("Error from server (NotFound): pods ").then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::RuntimeKind;

    fn refusal(text: &str) -> Refusal {
        parse_refusal(text, "big").unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn messages_of_kubectl_are_told_apart() {
        for text in [
            "Error in configuration: context was not found for specified context: big",
            "error: context \"big\" does not exist",
        ] {
            assert_eq!(
                refusal(text),
                Refusal::UnknownConnection { message: "kubectl has no context 'big'".into() }
            );
        }
        let text = "E1123 04:32:20.164849   21307 memcache.go:265] \"Unhandled Error\" err=\"couldn't get current server API group list\"\nThe connection to the server 127.0.0.1:16444 was refused - did you specify the right host or port?";
        let Refusal::DaemonUnreachable { at, message, .. } = refusal(text) else { panic!() };
        assert_eq!(at.as_deref(), Some("127.0.0.1:16444"));
        assert!(message.starts_with("The connection"), "{message}");
        let text = "Error from server (Forbidden): pods \"x\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
        let message =
            "pods \"x\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1";
        assert_eq!(refusal(text), Refusal::NoRoom { message: message.into() });
        let text = "Error from server (Forbidden): pods is forbidden: User \"weak\" cannot create resource \"pods\" in API group \"\" in the namespace \"default\"";
        assert!(matches!(refusal(text), Refusal::NotPermitted { .. }));
        // Not a matter of rights.
        let text = "Error from server (Forbidden): pods \"x\" is forbidden: maximum memory usage per Container is 64Mi, but limit is 512Mi";
        let Refusal::NotAdmitted { message, .. } = refusal(text) else { panic!() };
        assert_eq!(
            message,
            "pods \"x\" is forbidden: maximum memory usage per Container is 64Mi, but limit is 512Mi"
        );
        let text = "Error from server (NotFound): namespaces \"nosuch\" not found";
        assert!(matches!(refusal(text), Refusal::UnknownConnection { .. }));
        let text = "error: You must be logged in to the server (Unauthorized)";
        assert!(matches!(refusal(text), Refusal::NotPermitted { .. }));
        let text = "warning: couldn't attach to pod/x, falling back to streaming logs: unable to upgrade connection: pod does not exist\nError from server (Forbidden): pods \"x\" is forbidden: User \"weak\" cannot get resource \"pods/log\" in API group \"\"";
        assert!(matches!(refusal(text), Refusal::Other { .. }));
    }

    #[test]
    fn what_admission_refuses_has_a_hint_that_fits() {
        for (said, hint) in [
            ("failed quota: stated: must specify limits.cpu", "--cpus"),
            ("failed quota: stated: must specify limits.cpu for: sandbox", "--cpus"),
            ("maximum memory usage per Container is 64Mi, but limit is 512Mi", "--memory"),
            ("minimum cpu usage per Container is 100m, but request is 10m", "requests 10m"),
            ("maximum cpu usage per Pod is 1.  No limit is specified", "--cpus"),
            (
                "cpu max limit to request ratio per Container is 2, but provided ratio is 100.000000",
                "LimitRange",
            ),
            (
                "violates PodSecurity \"restricted:latest\": runAsNonRoot != true (pod or container \"sandbox\" must set securityContext.runAsNonRoot=true)",
                "restricted profile",
            ),
            ("PodSecurityPolicy: unable to admit pod: []", "restricted profile"),
            ("no PriorityClass with name low was found", "priorityclasses"),
            ("pod rejected: RuntimeClass \"gvisor\" not found", "runtimeclasses"),
            (
                "error looking up service account boxes/default: serviceaccount \"default\" not found",
                "who manages",
            ),
        ] {
            let refused = refusal(&format!("Error from server (Forbidden): pods \"x\" is forbidden: {said}"));
            let shown = refused.to_string();
            assert!(
                shown.contains(said) && shown.starts_with("the cluster does not admit the pod: "),
                "{shown}"
            );
            assert!(refused.hint(RuntimeKind::Kubernetes).contains(hint), "{said}");
        }
        let refused =
            refusal("Error from server: admission webhook \"rules.example.com\" denied the request: no");
        assert!(refused.hint(RuntimeKind::Kubernetes).contains("a rule for pods"), "{refused}");
    }
}
