# @summary `[pools.NAME.agent_check]`: a program on the host of a member that sets its state.
type Proscenium::Agent_check = Struct[{
  'port'               => Proscenium::Port,
  Optional['interval'] => Proscenium::Duration,
}]
