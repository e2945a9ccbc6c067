/// Every way to merge sessions of `lengths` steps that keeps each session's own order, as the session of each step.
pub(super) fn all(lengths: &[usize]) -> Vec<Vec<usize>> {
    let mut left = lengths.to_vec();
    let mut orders = Vec::new();
    extend(&mut left, &mut Vec::new(), &mut orders);
    orders
}

fn extend(left: &mut [usize], order: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if left.iter().all(|steps| *steps == 0) {
        orders.push(order.clone());
        return;
    }
    for session in 0..left.len() {
        let Some(steps) = left.get_mut(session).filter(|steps| **steps > 0) else { continue };
        *steps -= 1;
        order.push(session);
        extend(left, order, orders);
        order.pop();
        if let Some(steps) = left.get_mut(session) {
            *steps += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_merge_is_there_once() {
        assert_eq!(all(&[2, 1]), [[0, 0, 1], [0, 1, 0], [1, 0, 0]]);
        // 6! / (2! 2! 2!) and 6! / (3! 3!)
        for (lengths, expected) in [(vec![2, 2, 2], 90), (vec![3, 3], 20), (vec![4], 1), (vec![], 1)] {
            let mut orders = all(&lengths);
            assert_eq!(orders.len(), expected);
            orders.sort();
            orders.dedup();
            assert_eq!(orders.len(), expected);
        }
    }
}
