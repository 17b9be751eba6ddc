# PUPPET=7: Puppet Server 7.9 and agent 7.23, the packages of Debian 12 on this machine. Sourced by lab.

NEEDS="java puppet puppetserver curl openssl setfacl"
CA_SETTINGS=""
PACKAGES="puppetserver puppet-agent acl curl openssl"

lab_exec() { exec "$@"; } # lab_exec COMMAND...: where the programs of this version are
on_machine() { "$@"; }
