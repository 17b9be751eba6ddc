//! The configuration that a workload needs from the proxies, and how the templates in `bench/` provide it.

/// The differences between the configurations of two workloads.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) workers: usize,
    pub(super) cores: Division,
    /// Whether members get the client's certificate.
    pub(super) forward_cert: bool,
    /// Whether the proxy accepts HTTP/2, from clients without a certificate.
    pub(super) http2: bool,
    /// Whether the proxy also passes connections through.
    pub(super) passthrough: bool,
    /// Whether the peers write an access log. Proscenium always writes its own.
    pub(super) peer_log: bool,
}

/// The cores that the proxy uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Division {
    /// Only the last core, without the load and the members.
    Apart,
    /// The last two cores, shared with the load and the members.
    Shared,
}

impl Shape {
    /// One worker on its own core, without forwarding certificates to members.
    pub(super) const PLAIN: Self = Self {
        workers: 1,
        cores: Division::Apart,
        forward_cert: false,
        http2: false,
        passthrough: false,
        peer_log: false,
    };

    /// Fills in a template for this shape. `#TAG ` at the start of a line comments it out unless the shape has the tag.
    pub(super) fn fill(&self, template: &str) -> String {
        let tags = [
            ("#CERT ", self.forward_cert),
            ("#NOCERT ", !self.forward_cert),
            ("#H2 ", self.http2),
            ("#H1 ", !self.http2),
            ("#L4 ", self.passthrough),
            ("#LOG ", self.peer_log),
            ("#NOLOG ", !self.peer_log),
        ];
        let mut filled = String::with_capacity(template.len());
        for line in template.lines() {
            let text = line.trim_start();
            let active = tags
                .iter()
                .filter(|(_, is_active)| *is_active)
                .find_map(|(tag, _)| text.strip_prefix(tag));
            filled += active.unwrap_or(line);
            filled.push('\n');
        }
        filled.replace("@workers@", &self.workers.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_has_the_lines_of_its_shape() {
        let template = "workers @workers@\n  #CERT forward\n#NOCERT keep\n#H2 two\n#H1 one\n#LOG all\n#NOLOG off\n# a comment";
        let two = Shape {
            workers: 2,
            forward_cert: true,
            http2: true,
            peer_log: true,
            ..Shape::PLAIN
        };
        assert_eq!(
            two.fill(template),
            "workers 2\nforward\n#NOCERT keep\ntwo\n#H1 one\nall\n#NOLOG off\n# a comment\n"
        );
        assert_eq!(
            Shape::PLAIN.fill(template),
            "workers 1\n  #CERT forward\nkeep\n#H2 two\none\n#LOG all\noff\n# a comment\n"
        );
    }
}
