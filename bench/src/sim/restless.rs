//! The life of a client that never has enough: it works until the run's workload is over, and connects again whenever its
//! connection is lost.

use std::rc::Rc;

use storage::sim_rng::SimRng;

use super::client::{Closed, Connection, Surroundings};

/// A client of that kind.
pub(super) trait Restless: Sized {
    /// Its surroundings, its name in the trace, and its decisions.
    fn identity(&mut self) -> (&Surroundings, &Rc<str>, &mut SimRng);

    /// Works on one connection; ends well when the workload is over.
    async fn work(&mut self, connection: &mut Connection) -> Result<(), Closed>;

    /// Goes on until the run's workload is over.
    async fn run(mut self) {
        loop {
            let (around, name, rng) = self.identity();
            let Some(mut connection) = around.connect(name, rng).await else {
                return;
            };
            let ended = self.work(&mut connection).await;
            drop(connection);
            if ended.is_ok() {
                return;
            }
            let (around, _, rng) = self.identity();
            around.back_off(rng).await;
        }
    }
}
